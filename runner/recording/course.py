"""How a run goes: what of it is to run, who answers its models, and what is kept.

Here everything runs, models answer for themselves, and nothing is kept beyond the report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from runner.errors import RunnerError
from runner.gateway.exchange import Exchange
from runner.isolated import IsolatedEnvironment
from runner.models.command import Announcement
from runner.models.server import serving
from runner.plan import RunPlan
from runner.provision import Cache
from runner.record import OnEvent, RolloutRecord
from runner.report.replay import ReplayFacts
from runner.report.value import OutcomeFacts, Report


class Course:
    """The course of a run that is neither recorded nor replayed; the others change what they have to."""

    @property
    def exchange(self) -> Exchange | None:
        """Who is between the gateway and the models, if anybody is."""
        return None

    @property
    def failure(self) -> RunnerError | None:
        """Why what is to be kept cannot be; the run is ended for it."""
        return None

    @property
    def held_bytes(self) -> int:
        """What transcripts and logs of rollouts that do not run again take in this process, about."""
        return 0

    @property
    def apart(self) -> bool:
        """Whether siblings that are not scored together run one by one, so that each has its outcome when it ends.

        In one group they have it when the last of them has ended.
        """
        return False

    def use(self, clean: Callable[[str], str]) -> None:
        """Take what removes the secrets of the environment that is about to start from text."""

    async def prepare(self, plan: RunPlan, cache: Cache, on_event: OnEvent | None) -> RunPlan:
        """Do what has to be done before the environment is made; return what it is to be made with.

        Raises:
            RunnerError: that cannot be done.
        """
        return plan

    def serving(
        self, plan: RunPlan, cache: Cache, on_event: OnEvent | None
    ) -> AbstractAsyncContextManager[Announcement]:
        """Make the model available for the length of the context.

        Raises:
            RunnerError: as `runner.models.server.serving` does.
        """
        return serving(
            plan.model,
            cache=cache,
            limits=plan.limits,
            provisioning=plan.provisioning,
            model_auth=plan.model_auth,
            on_event=on_event,
        )

    def started(self, env: IsolatedEnvironment, model: Announcement) -> None:
        """Environment and model are there.

        Raises:
            RunnerError: this cannot be noted.
        """

    def dataset(self, example_ids: Sequence[str]) -> None:
        """The dataset is there, and these are the examples that count.

        Raises:
            RunnerError: they are not those of the run that goes on or is replayed.
        """

    def standing(self, rollout_ids: Sequence[str], *, scores_groups: bool) -> Mapping[str, OutcomeFacts]:
        """Return the outcomes that stand from before, of the rollouts of one group; the others run.

        Args:
            rollout_ids: The rollouts of the group.
            scores_groups: Whether what one is given may depend on its siblings.
        """
        return {}

    def keep(self, record: RolloutRecord, facts: OutcomeFacts) -> None:
        """A rollout has its outcome. Does not raise."""

    def compared(self) -> ReplayFacts | None:
        """Return how the run compares with the one that it replays; `None` where it replays none."""
        return None

    def ended(self, report: Report | None) -> None:
        """The run is over, in whatever way. Harmless twice.

        Args:
            report: What there is to say of it; `None` when it ended before there was anything.

        Raises:
            RunnerError: that cannot be kept.
        """
