"""How relevant is each of these texts to this query?

Rerankers know nothing of indexes, storage or hits: a query and texts go in, one score for each comes out.
"""

from rerank.adapters import FunctionReranker, as_reranker
from rerank.base import Reranker, RerankError, RerankScores
from rerank.cascade import Cascade, CascadeStage
from rerank.cross_encoder import CrossEncoder, LeasedCrossEncoder, RankedText
from rerank.reading.score_cache import ScoreCache
from rerank.reading.windows import Passages

__all__ = [
    "Cascade",
    "CascadeStage",
    "CrossEncoder",
    "FunctionReranker",
    "LeasedCrossEncoder",
    "Passages",
    "RankedText",
    "RerankError",
    "RerankScores",
    "Reranker",
    "ScoreCache",
    "as_reranker",
]
