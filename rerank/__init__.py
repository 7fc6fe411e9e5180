"""How relevant is each of these texts to this query?

Rerankers know nothing of indexes, storage or hits: a query and texts go in, one score for each comes out.
"""

from rerank.adapters import FunctionReranker, as_reranker
from rerank.base import Reranker, RerankError, RerankScores
from rerank.cross_encoder import CrossEncoder, LeasedCrossEncoder, RankedText

__all__ = [
    "CrossEncoder",
    "FunctionReranker",
    "LeasedCrossEncoder",
    "RankedText",
    "RerankError",
    "RerankScores",
    "Reranker",
    "as_reranker",
]
