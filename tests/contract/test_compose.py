"""deploy/compose.yaml and deploy/Dockerfile name only what exists."""

import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
COMPOSE = yaml.safe_load((REPOSITORY / "deploy" / "compose.yaml").read_text())
SERVICES: dict[str, dict] = COMPOSE["services"]
DOCKERFILE = (REPOSITORY / "deploy" / "Dockerfile").read_text()
OURS = {name: service for name, service in SERVICES.items() if service["image"] == "tallystick"}
POM = (REPOSITORY / "deploy" / "kafka" / "pom.xml").read_text()


def test_the_services_are_both_servers_two_preparations_and_the_workers():
    assert set(SERVICES) == {"kafka", "postgres", "migrate", "topics", "variables", "memory"}


@pytest.mark.parametrize("name", OURS)
def test_each_command_is_one_of_tally(name: str):
    command = OURS[name]["command"]
    # A worker's name is an argument, checked by the command itself before anything is reached.
    shown = command[:1] if command[0] == "worker" else command

    answer = subprocess.run(
        [sys.executable, "-m", "workers", *shown, "--help"],
        check=False,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert answer.returncode == 0, answer.stderr
    assert command[0] != "worker" or (REPOSITORY / "workers" / command[1]).is_dir()


@pytest.mark.parametrize("name", OURS)
def test_each_setting_is_known(name: str):
    from workers.settings import Settings

    known = {f"TALLY_{field.upper()}" for field in Settings.model_fields}

    assert set(OURS[name]["environment"]) <= known


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_waits_only_for_services_that_exist(name: str):
    for awaited, how in SERVICES[name].get("depends_on", {}).items():
        assert awaited in SERVICES
        assert how["condition"] != "service_healthy" or "healthcheck" in SERVICES[awaited]


def test_named_volumes_are_declared_and_used():
    used = {volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])}

    assert used == set(COMPOSE["volumes"])


def test_the_broker_is_the_one_that_deploy_kafka_starts():
    version = re.search(r"<kafka.version>(.+)</kafka.version>", POM)
    assert version is not None

    assert SERVICES["kafka"]["image"] == f"apache/kafka:{version[1]}"


def test_the_broker_takes_records_of_four_mib():
    assert int(SERVICES["kafka"]["environment"]["KAFKA_MESSAGE_MAX_BYTES"]) > 4 * 1024 * 1024


def test_the_image_copies_only_what_exists_and_is_sent():
    ignore = (REPOSITORY / "deploy" / "Dockerfile.dockerignore").read_text().split()
    sent = [pattern.removeprefix("!") for pattern in ignore if pattern.startswith("!")]
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    sources = [source for copy in copies for source in copy.split()]

    assert sources
    for source in sources:
        assert (REPOSITORY / source).exists(), source
        assert any(fnmatch(source, pattern) for pattern in sent), source


def test_the_image_holds_every_package_of_the_wheel():
    pyproject = (REPOSITORY / "pyproject.toml").read_text()
    packages = re.search(r"^packages = \[(\"schemas\".*)\]", pyproject, re.MULTILINE)
    assert packages is not None

    for package in packages[1].replace('"', "").split(", "):
        assert f"\nCOPY {package} {package}\n" in DOCKERFILE


def test_the_image_does_not_run_as_root():
    last_stage = DOCKERFILE.split("\nFROM ")[-1]

    assert re.search(r"^USER (?!0\b|root\b)", last_stage, re.MULTILINE)
