"""The manifests of examples/deploy against the schemas of what takes them; `make deploy` runs this.

Those of Kubernetes and of GitHub's workflows come with the packages that check them; that of FlinkDeployment
lies in the operator's own jar, from which the Makefile takes it.
"""

import copy
import subprocess
import sys

import pytest
import yaml

from tests.conftest import REPOSITORY

WHY = "is not installed here; `make deploy` runs this where it is"
validate = pytest.importorskip("kubernetes_validate", reason=f"kubernetes-validate {WHY}")
jsonschema = pytest.importorskip("jsonschema", reason=f"jsonschema {WHY}")

DEPLOY = REPOSITORY / "examples/deploy"
CRD = REPOSITORY / ".cache/deploy/flinkdeployments.flink.apache.org-v1.yml"
MANIFESTS = [
    (f"{path.name}-{manifest['kind']}", manifest)
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for manifest in yaml.safe_load_all(path.read_text())
]
OWN = [(name, manifest) for name, manifest in MANIFESTS if manifest["kind"] != "FlinkDeployment"]


def closed(schema):
    """A schema that takes no fields but those it names, which Kubernetes would drop in silence."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    is_open = "additionalProperties" in schema or schema.get("x-kubernetes-preserve-unknown-fields")
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object" and not is_open:
        found["additionalProperties"] = False
    return found


@pytest.mark.parametrize("version", ["1.30", "1.37"])
@pytest.mark.parametrize(("name", "manifest"), OWN, ids=[name for name, _ in OWN])
def test_manifests_are_what_kubernetes_takes(name, manifest, version):
    validate.validate(manifest, version, strict=True)


def test_a_field_that_kubernetes_does_not_know_is_found():
    (manifest,) = (copy.deepcopy(manifest) for name, manifest in OWN if name == "job.yaml-Job")
    manifest["spec"]["backofLimit"] = 3
    with pytest.raises(validate.ValidationError, match="backofLimit"):
        validate.validate(manifest, "1.37", strict=True)


def test_the_session_is_what_the_flink_operator_takes():
    if not CRD.exists():
        pytest.skip("the operator's definition is not here; `make deploy` fetches it with Maven")
    (version,) = yaml.safe_load(CRD.read_text())["spec"]["versions"]
    (manifest,) = (
        copy.deepcopy(manifest) for _, manifest in MANIFESTS if manifest["kind"] == "FlinkDeployment"
    )
    assert manifest["apiVersion"] == f"flink.apache.org/{version['name']}"
    spec = closed(version["schema"]["openAPIV3Schema"]["properties"]["spec"])
    jsonschema.validate(manifest["spec"], spec)
    manifest["spec"]["taskManager"]["podTemplate"]["spec"]["containers"][1]["images"] = "mistaken"
    with pytest.raises(jsonschema.ValidationError, match="images"):
        jsonschema.validate(manifest["spec"], spec)


def test_the_workflow_is_what_github_takes():
    program = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    done = subprocess.run([*program, DEPLOY / "github-workflow.yaml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
