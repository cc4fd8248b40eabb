"""What a person should know about a bundle, in sentences."""

from __future__ import annotations

from stayfast.capacity.spec.workload import WorkloadKind
from stayfast.model.capacity import CapacityClass
from stayfast.render.context import Controller, RenderContext
from stayfast.render.objects.environment import interval_steps, needs_credentials, secret_variables
from stayfast.render.objects.pod import memory_request_gib, snapshot_gib


def advise(outline: RenderContext) -> list[str]:
    """What a person should know about this bundle."""
    spec, plan, window = outline.spec, outline.plan, outline.window
    advice = _memory_advice(outline)
    if (
        outline.capacity in (CapacityClass.SPOT, CapacityClass.HYBRID)
        and plan.grace.needed_seconds > window.pod_seconds
    ):
        advice.append(
            f"a last save needs about {plan.grace.needed_seconds:.0f} s and the machine gives {window.pod_seconds} s: "
            "work since the last checkpoint is lost at each preemption"
        )
    if window.is_long:
        advice.append("the 120 s shutdown needs a control plane from 1.35.0-gke.1171000 on")
        if outline.class_rows and outline.is_autopilot:
            advice.append(
                "whether Autopilot honours the 120 s of a ComputeClass is not confirmed: watch one preemption"
            )
        elif not outline.class_rows:
            advice.append("gcloud 528.0.0 refuses the field of the 120 s shutdown: use a newer one, or Terraform")
    found = plan.option(plan.choice).interruptions if plan.choice else None
    if outline.form == Controller.JOB and spec.kind == WorkloadKind.TRAIN and found is not None and found > 6:
        advice.append(
            f"{found:.0f} interruptions are expected, and a Job waits up to 10 minutes before each restart: "
            "--form jobset does not wait"
        )
    if spec.kind == WorkloadKind.TRAIN and spec.checkpoint_url and interval_steps(outline) is None:
        advice.append("CHECKPOINT_INTERVAL is not set: give work as steps and seconds_per_step, and it will be")
    if outline.class_rows and spec.pools:
        advice.append("cluster.pools is not used: a ComputeClass makes its own pools")
    if outline.is_queued:
        hours = outline.lease_seconds / 3600
        advice.append(
            f"when the machines are taken back after {hours:.0f} h, Kueue deactivates the workload (CapacityRevoked): "
            "stayfast watch --act requeue-lease,reactivate-workload puts it back into its queue for the next lease, or "
            "set spec.active of its Workload to true"
        )
    if secret_variables(outline) or needs_credentials(outline):
        advice.append("passwords and keys are read from a Secret, which you make once")
    return advice


def _memory_advice(outline: RenderContext) -> list[str]:
    """A sentence when the snapshot leaves the program too little."""
    room, snapshot = memory_request_gib(outline.machine), snapshot_gib(outline)
    if snapshot * 2 <= room:
        return []
    where = f"the {room} GiB that a pod gets on {outline.machine.name}"
    cure = "take a machine with more memory, or more nodes"
    return [f"a snapshot of {snapshot:.1f} GiB takes more than half of {where}: {cure}"]
