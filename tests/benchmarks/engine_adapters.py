"""The engines that `engine_peers.py` compares, each with the settings that its documentation recommends."""

# ruff: noqa: D102 -- the protocol says what each method does

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

DIM = 384
DEPTH = 100  # of each list in a hybrid query


class Engine(Protocol):
    """One engine over one folder. Every query returns the numbers of the documents, best first."""

    def __init__(self, folder: Path) -> None: ...

    def add(self, first: int, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        """Add documents numbered from `first`; bucket is their number modulo 100."""

    def build(self) -> None:
        """Return once every index is there."""

    def dense(self, vector: NDArray[np.float32], k: int) -> list[int]:
        """Find the nearest by cosine."""

    def filtered(self, vector: NDArray[np.float32], k: int, bucket: int) -> list[int]:
        """Find the nearest in a bucket."""

    def lexical(self, text: str, k: int) -> list[int] | None:
        """Find the best by BM25; None if the engine has none."""

    def hybrid(self, text: str, vector: NDArray[np.float32], k: int) -> list[int] | None:
        """Find the best by both, fused by ranks; None if the engine has no such query."""

    def close(self) -> None:
        """Close it."""


class VectorSearch:
    """This project, as `open` makes it."""

    def __init__(self, folder: Path) -> None:
        import vectorsearch as vs  # noqa: PLC0415 -- each engine is imported in the process that measures it

        self._db = vs.open(folder, embed=None, rerank=None)

    def add(self, first: int, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        self._db.add(
            {"id": str(i), "text": text, "metadata": {"bucket": i % 100}, "vector": vector}
            for i, (text, vector) in enumerate(zip(texts, vectors, strict=True), first)
        )

    def build(self) -> None:
        self._db.refresh()

    def dense(self, vector: NDArray[np.float32], k: int) -> list[int]:
        return self._ids(vector=vector, k=k)

    def filtered(self, vector: NDArray[np.float32], k: int, bucket: int) -> list[int]:
        return self._ids(vector=vector, k=k, filter={"bucket": bucket})

    def lexical(self, text: str, k: int) -> list[int]:
        return self._ids(text, k=k, mode="lexical")

    def hybrid(self, text: str, vector: NDArray[np.float32], k: int) -> list[int]:
        return self._ids(text, vector=vector, k=k)

    def close(self) -> None:
        self._db.close()

    def _ids(self, query: str | None = None, **options: Any) -> list[int]:
        return [int(hit.id) for hit in self._db.search(query, **options)]


class LanceDB:
    """LanceDB with IVF_HNSW_SQ, a full-text index and a scalar index."""

    def __init__(self, folder: Path) -> None:
        import lancedb  # noqa: PLC0415 -- as above

        self._db = lancedb.connect(str(folder))
        names = self._db.table_names()
        self._table: Any = self._db.open_table("documents") if "documents" in names else None

    def add(self, first: int, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        import pyarrow as pa  # noqa: PLC0415 -- as above

        numbers = range(first, first + len(texts))
        rows = pa.table(
            {
                "id": [*numbers],
                "text": [*texts],
                "bucket": [i % 100 for i in numbers],
                "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIM),
            }
        )
        if self._table is None:
            self._table = self._db.create_table("documents", rows)
        else:
            self._table.add(rows)

    def build(self) -> None:
        from lancedb.index import FTS, BTree, HnswSq  # noqa: PLC0415 -- as above

        self._table.create_index("vector", config=HnswSq(distance_type="cosine"))
        self._table.create_index("text", config=FTS())
        self._table.create_index("bucket", config=BTree())
        self._table.wait_for_index([index.name for index in self._table.list_indices()])
        self._table.optimize()

    def dense(self, vector: NDArray[np.float32], k: int) -> list[int]:
        return self._ids(self._table.search(vector).distance_type("cosine"), k)

    def filtered(self, vector: NDArray[np.float32], k: int, bucket: int) -> list[int]:
        query = self._table.search(vector).distance_type("cosine").where(f"bucket = {bucket}", prefilter=True)
        return self._ids(query, k)

    def lexical(self, text: str, k: int) -> list[int]:
        return self._ids(self._table.search(text, query_type="fts"), k)

    def hybrid(self, text: str, vector: NDArray[np.float32], k: int) -> list[int]:
        query = self._table.search(query_type="hybrid").vector(vector).distance_type("cosine").text(text)
        return self._ids(query.limit(DEPTH), DEPTH)[:k]

    def close(self) -> None:
        self._table = None

    def _ids(self, query: Any, k: int) -> list[int]:
        rows = query.limit(k).select(["id", "text"]).to_arrow()
        return [int(i) for i in rows["id"].to_pylist()]


class MilvusLite:
    """milvus-lite with HNSW, and its own BM25 function over the text."""

    def __init__(self, folder: Path) -> None:
        from pymilvus import MilvusClient  # noqa: PLC0415 -- as above

        folder.mkdir(parents=True, exist_ok=True)
        self._client = MilvusClient(str(folder / "milvus.db"))
        if not self._client.has_collection("documents"):
            self._make()
        self._client.load_collection("documents")

    def _make(self) -> None:
        from pymilvus import DataType, Function, FunctionType  # noqa: PLC0415 -- as above

        schema = self._client.create_schema()
        schema.add_field("id", DataType.INT64, is_primary=True)
        schema.add_field("text", DataType.VARCHAR, max_length=4000, enable_analyzer=True)
        schema.add_field("bucket", DataType.INT64)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=DIM)
        schema.add_field("sparse", DataType.SPARSE_FLOAT_VECTOR)
        bm25 = {"input_field_names": ["text"], "output_field_names": ["sparse"], "function_type": FunctionType.BM25}
        schema.add_function(Function(name="bm25", **bm25))
        index = self._client.prepare_index_params()
        index.add_index("vector", index_type="HNSW", metric_type="COSINE", params={"M": 16, "efConstruction": 200})
        index.add_index("sparse", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25")
        self._client.create_collection("documents", schema=schema, index_params=index)

    def add(self, first: int, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        rows = [
            {"id": i, "text": text, "bucket": i % 100, "vector": vector}
            for i, (text, vector) in enumerate(zip(texts, vectors, strict=True), first)
        ]
        self._client.insert("documents", rows)

    def build(self) -> None:
        self._client.flush("documents")

    def dense(self, vector: NDArray[np.float32], k: int) -> list[int]:
        return self._ids([vector], k, anns_field="vector")

    def filtered(self, vector: NDArray[np.float32], k: int, bucket: int) -> list[int]:
        return self._ids([vector], k, anns_field="vector", filter=f"bucket == {bucket}")

    def lexical(self, text: str, k: int) -> list[int]:
        return self._ids([text], k, anns_field="sparse")

    def hybrid(self, text: str, vector: NDArray[np.float32], k: int) -> list[int]:
        from pymilvus import AnnSearchRequest, RRFRanker  # noqa: PLC0415 -- as above

        dense = AnnSearchRequest([vector], "vector", {"metric_type": "COSINE"}, DEPTH)
        sparse = AnnSearchRequest([text], "sparse", {"metric_type": "BM25"}, DEPTH)
        fields = {"limit": k, "output_fields": ["text"]}
        found = self._client.hybrid_search("documents", [dense, sparse], RRFRanker(60), **fields)
        return [int(hit["id"]) for hit in found[0]]

    def close(self) -> None:
        self._client.close()

    def _ids(self, data: list[Any], k: int, **options: Any) -> list[int]:
        found = self._client.search("documents", data=data, limit=k, output_fields=["text"], **options)
        return [int(hit["id"]) for hit in found[0]]


class Chroma:
    """Chroma's persistent client with its HNSW; it has no BM25 and no hybrid query."""

    def __init__(self, folder: Path) -> None:
        import chromadb  # noqa: PLC0415 -- as above
        from chromadb.config import Settings  # noqa: PLC0415 -- as above

        self._client = chromadb.PersistentClient(str(folder), settings=Settings(anonymized_telemetry=False))
        options: Any = {"configuration": {"hnsw": {"space": "cosine"}}, "embedding_function": None}
        self._collection = self._client.get_or_create_collection("documents", **options)
        self._most = self._client.get_max_batch_size()

    def add(self, first: int, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        for start in range(0, len(texts), self._most):
            numbers = range(first + start, first + min(start + self._most, len(texts)))
            self._collection.add(
                ids=[str(i) for i in numbers],
                embeddings=vectors[start : start + self._most],
                documents=[*texts[start : start + self._most]],
                metadatas=[{"bucket": i % 100} for i in numbers],
            )

    def build(self) -> None:
        """Do nothing: it was built while adding."""

    def dense(self, vector: NDArray[np.float32], k: int) -> list[int]:
        return self._ids(vector, k)

    def filtered(self, vector: NDArray[np.float32], k: int, bucket: int) -> list[int]:
        return self._ids(vector, k, where={"bucket": bucket})

    def lexical(self, text: str, k: int) -> None:  # noqa: ARG002 -- it has none
        return None

    def hybrid(self, text: str, vector: NDArray[np.float32], k: int) -> None:  # noqa: ARG002 -- as above
        return None

    def close(self) -> None:
        pass

    def _ids(self, vector: NDArray[np.float32], k: int, **options: Any) -> list[int]:
        found = self._collection.query(query_embeddings=[vector], n_results=k, include=["documents"], **options)
        return [int(i) for i in found["ids"][0]]


ENGINES: dict[str, type[Engine]] = {
    "vectorsearch": VectorSearch,
    "lancedb": LanceDB,
    "milvus-lite": MilvusLite,
    "chroma": Chroma,
}
