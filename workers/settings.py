"""Settings: `TALLY_*` environment variables, read once here, validated, passed down; secrets never printed."""

import re
import ssl
from pathlib import Path
from typing import Literal, Self, get_args

from pydantic import (
    Field,
    PostgresDsn,
    SecretStr,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

from schemas.errors import SettingsInvalid
from schemas.explain import in_words
from topics.connection import KafkaConnection

_DSN = TypeAdapter(PostgresDsn)
#: A name or IPv4 address, or an IPv6 address in brackets, and a port, which is 9092 where it is absent.
_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")
_MAX_PORT = 65535


class Settings(BaseSettings):
    """Every default works on one machine with the embedded stack; times are seconds."""

    model_config = SettingsConfigDict(env_prefix="TALLY_", frozen=True, extra="ignore")

    kafka_bootstrap_servers: str = "127.0.0.1:9092"
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    kafka_sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    kafka_sasl_username: str | None = None
    kafka_sasl_password: SecretStr | None = None
    kafka_tls_ca_file: Path | None = None
    kafka_tls_cert_file: Path | None = None
    kafka_tls_key_file: Path | None = None
    #: A killed worker's partitions move after this long: seconds, not minutes. A worker sends three
    #: heartbeats in it, so one lost heartbeat moves nothing.
    kafka_session_timeout_s: float = Field(default=10.0, ge=2.0, le=300.0)
    topic_prefix: str = Field(default="tally.", pattern=r"^[A-Za-z0-9._-]{0,100}$")
    topic_partitions: int = Field(default=8, ge=1, le=1024)
    topic_replication: int = Field(default=1, ge=1, le=7)

    postgres_dsn: SecretStr = SecretStr("postgresql://postgres@127.0.0.1:5432/postgres")
    postgres_pool_size: int = Field(default=4, ge=1, le=100)

    batch_size: int = Field(default=500, ge=1, le=10_000)
    #: Outcomes are kept at least as long as their input can come again: never below the topic's retention.
    outcome_retention_days: int = Field(default=8, ge=8, le=3650)
    #: A finished execution and its history are deleted after this long. Never below the outcome retention: until then
    #: its events may come again and must be known.
    execution_retention_days: int = Field(default=90, ge=8, le=36500)
    #: An ended execution leaves the table after this long; late events rebuild it from PostgreSQL.
    ended_grace_s: float = Field(default=60.0, ge=0)
    purge_interval_s: float = Field(default=60.0, gt=0, le=600)

    #: Where /healthz, /readyz and /metrics are served; 0 picks a free port, empty host serves none.
    health_host: str = "127.0.0.1"
    health_port: int = Field(default=0, ge=0, le=65535)
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_format: Literal["console", "json"] = "console"
    #: A named point at which the process ends itself, for crash tests: `after_commit:3` is its third pass.
    crash_at: str | None = None

    @field_validator("kafka_bootstrap_servers")
    @classmethod
    def _are_servers(cls, servers: str) -> str:
        for server in servers.split(","):
            found = _SERVER.fullmatch(server.strip())
            if found is None or not 1 <= int(found[1] or 1) <= _MAX_PORT:
                raise ValueError("must look like host:9092, several separated by commas")
        return servers

    @field_validator("postgres_dsn")
    @classmethod
    def _is_a_dsn(cls, dsn: SecretStr) -> SecretStr:
        try:
            _DSN.validate_python(dsn.get_secret_value())
        except ValidationError:
            raise ValueError("must look like postgresql://user:password@host:5432/database") from None
        return dsn

    @model_validator(mode="after")
    def _sasl_is_whole(self) -> Self:
        if self.kafka_security_protocol.startswith("SASL") and not (
            self.kafka_sasl_username and self.kafka_sasl_password
        ):
            raise ValueError("SASL needs TALLY_KAFKA_SASL_USERNAME and TALLY_KAFKA_SASL_PASSWORD")
        return self

    @model_validator(mode="after")
    def _history_outlives_outcomes(self) -> Self:
        if self.execution_retention_days < self.outcome_retention_days:
            raise ValueError("TALLY_EXECUTION_RETENTION_DAYS must not be below TALLY_OUTCOME_RETENTION_DAYS")
        return self

    def kafka(self) -> KafkaConnection:
        """Return how to reach Kafka. Raises `SettingsInvalid` for a TLS file that cannot be used."""
        password = self.kafka_sasl_password
        return KafkaConnection(
            bootstrap_servers=self.kafka_bootstrap_servers,
            prefix=self.topic_prefix,
            security_protocol=self.kafka_security_protocol,
            ssl_context=self._tls(),
            sasl_mechanism=self.kafka_sasl_mechanism,
            sasl_username=self.kafka_sasl_username,
            sasl_password=None if password is None else password.get_secret_value(),
        )

    def _tls(self) -> ssl.SSLContext | None:
        if not self.kafka_security_protocol.endswith("SSL"):
            return None
        ca, certificate, key = self.kafka_tls_ca_file, self.kafka_tls_cert_file, self.kafka_tls_key_file
        _check_readable("TALLY_KAFKA_TLS_CA_FILE", ca)
        _check_readable("TALLY_KAFKA_TLS_CERT_FILE", certificate)
        _check_readable("TALLY_KAFKA_TLS_KEY_FILE", key)
        try:
            context = ssl.create_default_context(cafile=ca)
        except ssl.SSLError as error:
            raise SettingsInvalid(f"TALLY_KAFKA_TLS_CA_FILE: {ca} holds no certificates in PEM form") from error
        if certificate is not None:
            try:
                context.load_cert_chain(certificate, key)
            except ssl.SSLError as error:
                raise SettingsInvalid(
                    f"TALLY_KAFKA_TLS_CERT_FILE, TALLY_KAFKA_TLS_KEY_FILE: {certificate} and {key or 'it'} are not a "
                    "certificate in PEM form and its private key"
                ) from error
        return context


def _check_readable(variable: str, file: Path | None) -> None:
    if file is None:
        return
    try:
        with file.open("rb"):
            return
    except OSError as error:
        raise SettingsInvalid(f"{variable}: {file} cannot be read ({error.strerror}); correct the path") from error


def read_settings(**overrides: object) -> Settings:
    """Read the environment. Raises `SettingsInvalid` naming each wrong variable, and its value if it is no secret."""
    try:
        return Settings(**overrides)  # type: ignore[arg-type]
    except ValidationError as error:
        problems = "; ".join(_explained(problem) for problem in error.errors())
        raise SettingsInvalid(f"settings are wrong: {problems}") from None


def _explained(problem: ErrorDetails) -> str:
    """Return a problem with the variable's name; rules over several variables name them in their text."""
    name = "_".join(str(part) for part in problem["loc"])
    if not name:
        return in_words(problem, secret=True)
    kind = Settings.model_fields[name].annotation
    what = in_words(problem, secret=SecretStr in (kind, *get_args(kind)))
    return f"TALLY_{name.upper()}: {what}"
