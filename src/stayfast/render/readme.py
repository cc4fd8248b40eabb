"""The README of a bundle: what is in it, and the exact commands to apply, check and remove it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from urllib.parse import urlsplit

from stayfast.capacity.spec.workload import WorkloadKind
from stayfast.model.labels import run_selector
from stayfast.render.context import Controller, RenderContext
from stayfast.render.objects.environment import credentials_name, needs_credentials, secret_name, secret_variables
from stayfast.render.objects.monitoring import is_watched
from stayfast.render.objects.order import rendered_files
from stayfast.render.pools.pool import node_pools

_OTHERS = {
    "pools.sh": "the node pools, with gcloud",
    "pools.tf": "the same node pools, with Terraform: use one of the two",
    "node-config/spot-grace.yaml": "the longer shutdown of the Spot nodes, read by `pools.sh`",
    "patches/pin-to-on-demand.yaml": "keeps controllers off machines that go away",
}
_NOT_REMOVED = {"00-namespace.yaml": "the namespace", "30-storage.yaml": "the storage"}
"""Not removed with the run: others may live there, and deleting a claim may delete what is on it."""


def readme(outline: RenderContext, files: Sequence[str], advice: Sequence[str]) -> str:
    """Markdown, without the marker line."""
    sections = [
        f"# {outline.name}\n",
        _summary(outline),
        _contents(files),
        _before(outline, files),
        _apply(outline),
        _check(outline),
        _monitor(outline),
        _remove(files),
    ]
    if advice:
        sections.append("## Worth knowing\n\n" + "".join(f"- {sentence}\n" for sentence in advice))
    return "\n".join(section for section in sections if section)


def _summary(outline: RenderContext) -> str:
    spec, machine = outline.spec, outline.machine
    return (
        f"{spec.kind.value.capitalize()} on {outline.capacity_text}: {spec.nodes} × {machine.name} "
        f"({machine.count} {machine.accelerator}) in {outline.plan.region}, namespace `{outline.namespace}`, "
        f"{'Autopilot' if outline.is_autopilot else 'Standard'}. `stayfast plan` says why.\n"
    )


def _contents(files: Sequence[str]) -> str:
    about = {part.name: part.about for part in rendered_files()} | _OTHERS
    rows = "".join(f"| `{name}` | {about[name]} |\n" for name in files if name in about)
    return f"| File | What it is |\n|---|---|\n{rows}"


def _before(outline: RenderContext, files: Sequence[str]) -> str:
    lines = []
    if node_pools(outline):
        lines.append("CLUSTER=my-cluster sh pools.sh            # or: terraform apply -var cluster=my-cluster")
    needed = []
    if outline.form == Controller.JOBSET:
        needed.append("jobsets.jobset.x-k8s.io")
    if outline.class_rows:
        needed.append("computeclasses.cloud.google.com")
    if needed:
        lines.append(f"kubectl get crd {' '.join(needed)}")
    if outline.is_queued:
        versions = "-o jsonpath='{.spec.versions[*].name}'"
        lines.append(f"kubectl get crd clusterqueues.kueue.x-k8s.io {versions}   # must list v1beta2")
    if "00-namespace.yaml" in files:
        lines.append("kubectl apply --server-side -f 00-namespace.yaml")
    lines += _identity(outline)
    lines += _secrets(outline)
    return f"## Before\n\n```\n{chr(10).join(lines)}\n```\n" if lines else ""


_PROJECT = [
    "PROJECT=$(gcloud config get project)",
    "PROJECT_NUMBER=$(gcloud projects describe \"$PROJECT\" --format='value(projectNumber)')",
]


def _identity(outline: RenderContext) -> list[str]:
    """Who may open the bucket and the queue; with a Google service account, who may act as it."""
    spec = outline.spec
    member = (
        "principal://iam.googleapis.com/projects/$PROJECT_NUMBER/locations/global/workloadIdentityPools/"
        f"$PROJECT.svc.id.goog/subject/ns/{outline.namespace}/sa/{outline.name}"
    )
    lines = []
    if spec.service_account:
        lines.append(
            f"gcloud iam service-accounts add-iam-policy-binding {shlex.quote(spec.service_account)} \\\n"
            "  --role=roles/iam.workloadIdentityUser \\\n"
            f'  --member="serviceAccount:$PROJECT.svc.id.goog[{outline.namespace}/{outline.name}]"'
        )
        member = f"serviceAccount:{spec.service_account}"
    for bucket in _buckets(outline):
        place = f"storage buckets add-iam-policy-binding {shlex.quote('gs://' + bucket)}"
        lines.append(_grant(place, "storage.objectUser", member))
    if spec.queue_url and spec.queue_url.startswith("pubsub://"):
        parts = urlsplit(spec.queue_url)
        subscription, project = shlex.quote(parts.path.strip("/")), shlex.quote(parts.netloc)
        place = f"pubsub subscriptions add-iam-policy-binding {subscription} --project={project}"
        lines.append(_grant(place, "pubsub.subscriber", member))
    return [*_PROJECT, *lines] if lines else []


def _buckets(outline: RenderContext) -> list[str]:
    spec = outline.spec
    urls = [url for url in (spec.checkpoint_url, spec.sink_url) if url and url.startswith("gs://")]
    mounted = [spec.volume_bucket] if spec.volume_bucket else []
    return list(dict.fromkeys([urlsplit(url).netloc for url in urls] + mounted))


def _grant(place: str, role: str, member: str) -> str:
    return f'gcloud {place} \\\n  --role=roles/{role} \\\n  --member="{member}"'


def _secrets(outline: RenderContext) -> list[str]:
    wanted = {secret_name(outline): secret_variables(outline)}
    if needs_credentials(outline):
        wanted[credentials_name(outline)] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"]
    return [
        f"kubectl create secret generic {secret} -n {outline.namespace}"
        + "".join(f" \\\n  --from-literal={name}='…'" for name in names)
        for secret, names in wanted.items()
        if names
    ]


def _apply(outline: RenderContext) -> str:
    lines = [
        "kubectl apply --server-side --dry-run=server -f .     # what the API server says to it",
        "kubectl apply --server-side -f .",
        f"kubectl get {_resource(outline)} {outline.name} -n {outline.namespace} --watch",
    ]
    text = f"## Apply\n\n```\n{chr(10).join(lines)}\n```\n"
    if outline.spec.kind == WorkloadKind.SERVE:
        return text
    kept = (
        "The run goes on from its last checkpoint" if outline.spec.checkpoint_url else "What is recorded stays recorded"
    )
    return text + (
        "\nThe pods of a Job cannot be changed once it is there: after a change, delete `50-workload.yaml` and apply "
        f"again. {kept}.\n"
    )


def _resource(outline: RenderContext) -> str:
    if outline.spec.kind == WorkloadKind.SERVE:
        return "deployment"
    return "jobset" if outline.form == Controller.JOBSET else "job"


def _check(outline: RenderContext) -> str:
    pods = f"-n {outline.namespace} -l {run_selector(outline.name)}"
    lines = [
        "stayfast lint .                                       # nothing to report",
        f"kubectl get pods {pods} -o wide",
        f"kubectl describe pods {pods} | grep -A5 Events       # why it is Pending, if it is",
    ]
    if outline.is_queued:
        lines.append(f"kubectl get workloads,provisioningrequests -n {outline.namespace}   # its place in the queue")
    if outline.spec.checkpoint_url:
        lines.append(f"stayfast checkpoints ls {shlex.quote(outline.spec.checkpoint_url)}")
    if outline.is_queue_worker and not secret_variables(outline):
        queue, sink = outline.spec.queue_url or "", outline.spec.sink_url or ""
        lines.append(f"stayfast audit --queue {shlex.quote(queue)} --sink {shlex.quote(sink)}")
    return f"## Check\n\n```\n{chr(10).join(lines)}\n```\n"


def _monitor(outline: RenderContext) -> str:
    watched = ["kubectl apply -f monitoring/pod-monitoring.yaml          # where managed collection is on"]
    lines = [
        *(watched if is_watched(outline) else []),
        "kubectl apply -f alerts/prometheus-rule.yaml          # or alerts/managed-rules.yaml",
        *(
            f"kubectl patch deployment {name}-controller-manager -n {name}-system "
            "--patch-file patches/pin-to-on-demand.yaml"
            for name in ("kueue", "jobset")
        ),
    ]
    if outline.is_autopilot:
        lines = [line for line in lines if "patch" not in line]  # system pods of Autopilot are Google's to place
    return f"## Metrics, alerts, and controllers that must stay\n\n```\n{chr(10).join(lines)}\n```\n"


def _remove(files: Sequence[str]) -> str:
    names = [name for name in files if name.endswith(".yaml") and "/" not in name and name not in _NOT_REMOVED]
    kept = ["the checkpoints", *(what for name, what in _NOT_REMOVED.items() if name in files)]
    text = f"kubectl delete {' '.join('-f ' + name for name in reversed(names))}"
    return f"## Remove\n\n```\n{text}\n```\n\nThis leaves {' and '.join(kept)} where they are.\n"
