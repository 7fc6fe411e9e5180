"""Embed a collection again with another model: beside what there is, resumable, and exchanged at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vectorsearch import config
from vectorsearch.models.dot_product import indexed_dim
from vectorsearch.models.space import digest_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from backends.base import ModelSpec
    from vectorsearch.collection.collection import Collection
    from vectorsearch.collection.storage.sqlite.new_vectors import Made
    from vectorsearch.models.resolving import Models
    from vectorsearch.models.space import EmbeddingSpace
    from vectorsearch.types import Written


def reindex(
    collection: Collection,
    models: Models,
    space: EmbeddingSpace,
    *,
    embedder: ModelSpec,
    progress: Callable[[int, int], None] | None = None,
) -> Written:
    """Give every document the vector of another model, and return how many there are, and how many were truncated.

    Searches and writes go on with the old model meanwhile. Each chunk is kept beside the store, so a run that was cut
    off goes on where it stopped. At the end the vectors are exchanged in one transaction; whoever searches or writes
    then waits for it, and the dense index is built again by the next search. `progress(done, total)` counts documents.
    A second call waits for the first.

    Raises:
        VectorSearchError: the model failed, or the store can't be written; the old vectors stay.
    """
    with space.reindexing:  # they would share one file
        return _reindex(collection, models, space, embedder, progress or (lambda _done, _total: None))


def _reindex(
    collection: Collection,
    models: Models,
    space: EmbeddingSpace,
    embedder: ModelSpec,
    progress: Callable[[int, int], None],
) -> Written:
    collection.check_writable()
    new = collection.new_vectors(digest_of(embedder))
    encoder = models.encoder(embedder, "bulk")

    def make(texts: list[str]) -> Made:
        encoding = encoder.encode_passages(texts)
        return encoding.vectors, encoding.cut

    dim = indexed_dim(embedder) or int(make([""])[0].shape[1])
    total = collection.count()
    done = total - new.left()
    while chunk := new.next_texts(config.EMBED_CHUNK_DOCUMENTS):
        new.append([row for row, _ in chunk], make([text for _, text in chunk]))
        done += len(chunk)
        progress(done, max(done, total))
    embed = models.fingerprint_of(embedder)
    with space.exchange(embedder, is_done=lambda: collection.settings.embed == embed):
        return collection.exchange_vectors(new, embed=embed, dim=dim, make=make)
