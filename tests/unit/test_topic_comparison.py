"""How the topics of a broker are judged against the catalog."""

from dataclasses import replace

import pytest

from topics.admin import ExistingTopic, Finding, compare, configs_of
from topics.catalog import CATALOG, DAY_MS, Topic, TopicSpec, spec_of

FOR_EVER = "-1"


def as_created(partitions: int = 8, replication: int = 1) -> dict[Topic, ExistingTopic]:
    return {
        spec.topic: ExistingTopic(
            topic=spec.topic, partitions=partitions, replication=replication, configs=configs_of(spec, replication)
        )
        for spec in CATALOG
    }


def judge(topics: dict[Topic, ExistingTopic], *, partitions: int = 8, replication: int = 1) -> list[Finding]:
    return compare(topics.values(), partitions=partitions, replication=replication, outcome_retention_days=8)


def with_config(topic: Topic, **configs: str) -> dict[Topic, ExistingTopic]:
    topics = as_created()
    changed = {**topics[topic].configs, **{name.replace("_", "."): value for name, value in configs.items()}}
    return {**topics, topic: replace(topics[topic], configs=changed)}


@pytest.mark.parametrize("replication", [1, 3])
def test_topics_made_from_the_catalog_need_nothing(replication: int) -> None:
    assert judge(as_created(replication=replication), replication=replication) == []


def test_losing_one_of_three_replicas_stops_nothing() -> None:
    assert configs_of(spec_of(Topic.MEMORY_RESULTS), 3)["min.insync.replicas"] == "2"
    assert "min.insync.replicas" not in configs_of(spec_of(Topic.MEMORY_RESULTS), 1)


@pytest.mark.parametrize("spec", CATALOG, ids=lambda spec: spec.topic)
def test_compacted_topics_are_compacted_within_hours(spec: TopicSpec) -> None:
    """A recovery of the table reads what compaction left, and the segment that is never compacted."""
    configs = configs_of(spec, 1)

    assert ("segment.ms" in configs) == (spec.clean_up == "compact")
    assert int(configs.get("segment.ms", 0)) <= DAY_MS // 24


def test_a_missing_topic_is_an_error_with_its_remedy() -> None:
    topics = as_created()
    del topics[Topic.NODE_RESULTS]

    [finding] = judge(topics)

    assert finding == Finding(
        topic=Topic.NODE_RESULTS, error=True, what="is missing", remedy="run `tally topics create`"
    )


def test_unequal_copartitioned_counts_are_an_error() -> None:
    topics = as_created()
    topics[Topic.ACTIVITY_OUTPUTS] = replace(topics[Topic.ACTIVITY_OUTPUTS], partitions=3)

    errors = [finding for finding in judge(topics) if finding.error]

    assert len(errors) == 1
    assert "activity-outputs 3" in errors[0].what
    assert "8 partitions" in errors[0].remedy


def test_another_count_than_the_setting_is_only_worth_knowing() -> None:
    assert {finding.error for finding in judge(as_created(partitions=16))} == {False}


def test_a_topic_that_should_be_compacted_says_so() -> None:
    [finding] = judge(with_config(Topic.MEMORY_CHANGES, cleanup_policy="delete"))

    assert finding.error
    assert finding.remedy == "set cleanup.policy=compact"


def test_small_records_only_is_an_error() -> None:
    topics = as_created()
    topics[Topic.MEMORY_COMMANDS] = replace(topics[Topic.MEMORY_COMMANDS], configs={"cleanup.policy": "delete"})

    [finding] = judge(topics)

    assert "max.message.bytes=1048588" in finding.what


@pytest.mark.parametrize("retention", [FOR_EVER, str(9 * DAY_MS)])
def test_input_that_outlives_its_outcomes_is_an_error(retention: str) -> None:
    [finding] = judge(with_config(Topic.MEMORY_COMMANDS, retention_ms=retention))

    assert finding.error
    assert "TALLY_OUTCOME_RETENTION_DAYS" in finding.remedy


def test_output_may_be_kept_for_ever() -> None:
    assert judge(with_config(Topic.VARIABLE_UPDATES, retention_ms=FOR_EVER)) == []


def test_a_short_retention_is_worth_knowing() -> None:
    [finding] = judge(with_config(Topic.VARIABLE_UPDATES, retention_ms=str(DAY_MS)))

    assert not finding.error
    assert "1 days" in finding.what
