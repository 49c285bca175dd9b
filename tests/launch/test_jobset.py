"""The manifest that launch/gke.sh applies, against JobSet's published definition.

The package kubeflow-trainer-api has the fields and types of JobSet and of Kubernetes as classes, generated from their
OpenAPI documents. The full definition (kubernetes-sigs/jobset, Apache-2.0), which also has the values and bounds that a
server allows, is not on PyPI: it is `charts/jobset/crds/jobset.x-k8s.io_jobsets.yaml` there.

    JOBSET_CRD=jobset.x-k8s.io_jobsets.yaml pytest tests/launch/test_jobset.py
"""

import os
from pathlib import Path
from typing import Any

import pydantic
import pytest
import yaml
from kubeflow_trainer_api.models import JobsetV1alpha2JobSet

from tests.launch.jobset_schema import faults, schema_of
from tests.launch.test_scripts import GKE, TRAIN, script

CRD = os.environ.get("JOBSET_CRD")


def manifest(**changes: str) -> dict[str, Any]:
    found = script("gke.sh", *TRAIN, DRY_RUN="1", **GKE | changes)
    assert found.returncode == 0, found.stderr
    return yaml.safe_load(found.stdout)


def container(jobset: dict[str, Any]) -> dict[str, Any]:
    return jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]


def dropped(value: Any, kept: Any, where: str = "") -> list[str]:
    """Places of a value that are not, or are something else, in what was kept of it."""
    if isinstance(value, dict) and isinstance(kept, dict):
        return [place for key in value for place in dropped(value[key], kept.get(key), f"{where}.{key}")]
    if isinstance(value, list) and isinstance(kept, list) and len(value) == len(kept):
        return [
            place for at, pair in enumerate(zip(value, kept, strict=True)) for place in dropped(*pair, f"{where}[{at}]")
        ]
    return [] if value == kept else [where]


def unpublished(jobset: dict[str, Any]) -> list[str]:
    """Fields that the published classes do not know: they drop them."""
    return dropped(jobset, JobsetV1alpha2JobSet.from_dict(jobset).to_dict())


def test_every_field_is_one_of_the_published_classes() -> None:
    assert unpublished(manifest()) == []


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda jobset: jobset["spec"].update(replicas=1), ".spec.replicas"),
        (lambda jobset: jobset["spec"]["failurePolicy"].update(restarts=1), ".spec.failurePolicy.restarts"),
        (lambda jobset: container(jobset).update(commands=["vrjax"]), ".containers[0].commands"),
        (lambda jobset: container(jobset)["resources"].update(limit={"cpu": 1}), ".resources.limit"),
    ],
)
def test_a_field_that_is_not_published_is_found(change: Any, place: str) -> None:
    jobset = manifest()
    change(jobset)
    assert [found for found in unpublished(jobset) if found.endswith(place)] == unpublished(jobset) != []


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda jobset: jobset["spec"]["failurePolicy"].update(maxRestarts="ten"), "maxRestarts"),
        (lambda jobset: container(jobset)["env"].append({"name": "A", "value": 1}), "value"),
        (lambda jobset: container(jobset).update(command="vrjax train"), "command"),
    ],
)
def test_a_value_of_another_type_is_refused(change: Any, place: str) -> None:
    jobset = manifest()
    change(jobset)
    with pytest.raises(pydantic.ValidationError) as refused:
        unpublished(jobset)
    assert place in [error["loc"][0] for error in refused.value.errors()]


@pytest.fixture(scope="module")
def schema() -> Any:
    if CRD is None:
        pytest.skip("JOBSET_CRD names no file with JobSet's definition")
    definition = yaml.load(Path(CRD).read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    assert definition["metadata"]["name"] == "jobsets.jobset.x-k8s.io"
    return schema_of(definition, "v1alpha2")


def test_the_published_definition_accepts_it(schema: Any) -> None:
    assert list(faults(manifest(), schema)) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda jobset: jobset["spec"].update(replicas=1), ".spec.replicas: there is no such field"),
        (lambda jobset: jobset["spec"]["successPolicy"].pop("operator"), ".spec.successPolicy.operator: is missing"),
        (lambda jobset: jobset["spec"]["successPolicy"].update(operator="Most"), "is none of ['All', 'Any']"),
        (lambda jobset: jobset["spec"]["failurePolicy"].update(maxRestarts="ten"), "'ten' is no integer"),
        (lambda jobset: container(jobset).pop("name"), ".containers[0].name: is missing"),
        (lambda jobset: container(jobset)["env"].append({"name": "A", "value": 1}), ".env[2].value: 1 is no string"),
        (lambda jobset: container(jobset)["resources"]["limits"].update(cpu=1.5), "neither integer nor string"),
    ],
)
def test_what_the_definition_does_not_allow_is_found(schema: Any, change: Any, fault: str) -> None:
    jobset = manifest()
    change(jobset)
    assert any(fault in one for one in faults(jobset, schema)), list(faults(jobset, schema))


def test_words_reach_the_manifest_as_they_are() -> None:
    """A name that YAML would take for something else, and words with quotes, blanks and colons."""
    jobset = manifest(NAME="null", RESTARTS="3")
    assert jobset["metadata"]["name"] == "null"
    assert container(jobset)["command"] == TRAIN
    assert container(jobset)["resources"]["limits"] == {"google.com/tpu": 4}
    words = ["a: b", 'say "hello"', "back\\slash", "#no comment", "{x}", "@NAME@"]
    found = script("gke.sh", *words, DRY_RUN="1", **GKE)
    assert container(yaml.safe_load(found.stdout))["command"] == words
