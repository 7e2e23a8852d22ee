"""Lets Ray's autoscaler know of the workers that a run waits for: by a placement group that is pending.

That is exact where ``ray.autoscaler.sdk.request_resources`` is not: that is one wish for a whole cluster, the last one
overwrites all others, and it is fulfilled by what the cluster has in total, also by what others hold. The group is not
kept: once Ray has found room for it, it is given back, and the attempt takes the room. It goes with the job, however
that ends. Where there is no autoscaler it waits and costs nothing.
"""

from __future__ import annotations

from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from failsoft.training.ray_settings import RaySettings


class Demand:
    """Of one run, in the process that is connected to Ray."""

    def __init__(self) -> None:
        self._group: PlacementGroup | None = None
        self._of: RaySettings | None = None

    def wish(self, settings: RaySettings) -> bool:
        """Say, now and then, that workers are waited for.

        Args:
            settings: how many and how large they are, and which nodes are none for them.

        Returns:
            Whether Ray has found room for them since; it is free again in a moment.
        """
        if self._group is not None and settings == self._of:
            found = bool(self._group.wait(timeout_seconds=0))
            if found:
                self.withdraw()
            return found
        self.withdraw()
        selector = settings.selector()
        self._of = settings
        self._group = placement_group(
            [settings.need()] * settings.workers,
            strategy="PACK",
            bundle_label_selector=None if selector is None else [selector] * settings.workers,
        )
        return False

    def withdraw(self) -> None:
        """No workers are waited for any more."""
        group, self._group = self._group, None
        if group is not None:
            remove_placement_group(group)
