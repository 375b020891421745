"""How tokens are drafted, and how many of them published runs accept."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from planner.base.records import record


class DraftMethod(StrEnum):
    """What drafts tokens: nothing that is said, a smaller model, the model's own modules of
    multi-token prediction, heads trained beside it, or a search in what was written so far."""

    UNSAID = ""
    DRAFT_MODEL = "draft_model"
    MTP = "mtp"
    EAGLE = "eagle"
    EAGLE3 = "eagle3"
    NGRAM = "ngram"

    @property
    def states(self) -> int:
        """Vectors of the residual stream that a module or a head projects to one; 0: it is none."""
        return {"mtp": 2, "eagle": 2, "eagle3": 3}.get(self.value, 0)


@record(kw_only=True)
class Acceptance:
    """The probability that a drafted token is accepted after those before it, of published runs.

    ``usual`` is assumed where nobody says; runs lie between ``low`` and ``high``.
    """

    usual: float
    low: float
    high: float


_UNSAID = Acceptance(usual=0.65, low=0.57, high=0.72)
_CHAINS: Mapping[DraftMethod, Acceptance] = {
    # Y. Leviathan et al., arXiv:2211.17192, tables 2 and 3.
    DraftMethod.DRAFT_MODEL: Acceptance(usual=0.7, low=0.55, high=0.8),
    # DeepSeek-V3, arXiv:2412.19437, section 5.4.3: 0.85 to 0.9 of the first; 1.9 tokens of two
    # (github.com/sgl-project/sglang/pull/3582). Chat templates lower it.
    DraftMethod.MTP: Acceptance(usual=0.8, low=0.6, high=0.9),
    # 1.89 tokens with 2 drafted, 2.08 with 4 (github.com/vllm-project/vllm/pull/16035).
    DraftMethod.EAGLE: Acceptance(usual=0.57, low=0.5, high=0.65),
    # 2.46 with 3 (vLLM pull request 24344), 2.47 with 6 (24243), 3.53 with 7 (issue 26191).
    DraftMethod.EAGLE3: Acceptance(usual=0.68, low=0.6, high=0.75),
    # 2.96 with 5 where texts are edited (vLLM pull request 24344); in chats little repeats.
    DraftMethod.NGRAM: Acceptance(usual=0.45, low=0.2, high=0.75),
}
_TREES: Mapping[DraftMethod, Acceptance] = {
    # 2.5 to 3 tokens of 3 at most (github.com/sgl-project/sglang/pull/3582).
    DraftMethod.MTP: Acceptance(usual=0.87, low=0.75, high=0.95),
    # 3.75 tokens of 9 at most (github.com/sgl-project/sglang/pull/4247).
    DraftMethod.EAGLE: Acceptance(usual=0.75, low=0.65, high=0.8),
    # 4.68 of 6 at most, 5.39 of 9 (the same).
    DraftMethod.EAGLE3: Acceptance(usual=0.87, low=0.8, high=0.9),
}
_TREE_UNSAID = Acceptance(usual=0.8, low=0.74, high=0.88)


def acceptance(method: DraftMethod, *, is_tree: bool) -> Acceptance:
    """What is usual of a method; a tree has more than one token that may be accepted next."""
    if is_tree:
        return _TREES.get(method, _TREE_UNSAID)
    return _CHAINS.get(method, _UNSAID)
