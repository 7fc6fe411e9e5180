"""What every lexical index must do, against BM25 computed here from its formula."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

import pytest

from vectorsearch.collection.index.filtering.filters import parse_filter
from vectorsearch.collection.index.lexical.bm25 import BM25
from vectorsearch.types import Document

USUAL = BM25(1.2, 0.75)
CONSTANTS = [BM25(0.9, 0.4), BM25(0, 0), BM25(2.5, 1)]


def bm25(corpus: dict[str, list[str]], query: list[str], constants: BM25 = USUAL) -> dict[str, float]:
    """Return the score of each document with a word of the query (Robertson and Zaragoza 2009, idf as in Lucene)."""
    n_documents = len(corpus)
    average = sum(map(len, corpus.values())) / n_documents
    frequency = Counter(word for words in corpus.values() for word in set(words))
    scores: dict[str, float] = {}
    k1, b = constants
    for doc_id, words in corpus.items():
        counts = Counter(words)
        total = 0.0
        for word in (word for word in query if counts[word]):
            tf = counts[word]
            idf = math.log(1 + (n_documents - frequency[word] + 0.5) / (frequency[word] + 0.5))
            total += idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * len(words) / average))
        if total > 0:
            scores[doc_id] = total
    return scores


def texts(n: int, seed: int = 0) -> dict[str, str]:
    """Give n texts of 1 to 40 words, frequent and rare ones."""
    rng = random.Random(seed)  # noqa: S311 -- a repeatable test, no secret
    words = [f"w{i}" for i in range(300)]
    weights = [1 / (i + 1) for i in range(300)]
    return {f"d{i}": " ".join(rng.choices(words, weights, k=rng.randint(1, 40))) for i in range(n)}


def found(lexical: Any, query: str, k: int = 10) -> list[str]:
    """Return the ids found, best first."""
    return lexical.ids(lexical.index.search(query, k))


def check(lexical: Any, corpus: dict[str, str], query: str, k: int, constants: BM25 | None = None) -> None:
    """Compare a search with the formula: the same scores in order, and the right score for each document."""
    words = {doc_id: text.split() for doc_id, text in corpus.items()}
    wanted = bm25(words, query.split(), constants or USUAL)
    result = lexical.index.search(query, k, constants=constants)
    ids = lexical.ids(result)
    assert len(ids) == len(set(ids)) == min(k, len(wanted))
    assert result.scores.tolist() == pytest.approx(sorted(wanted.values(), reverse=True)[:k], rel=1e-5)
    assert result.scores.tolist() == pytest.approx([wanted[doc_id] for doc_id in ids], rel=1e-5)


def test_scores_equal_the_formula_when_documents_are_short(lexical: Any) -> None:
    """On documents of up to 40 words, every score is BM25's, with k1=1.2 and b=0.75."""
    corpus = texts(400)
    lexical.write(*(Document(doc_id, text) for doc_id, text in corpus.items()))
    for query in ("w0", "w5 w17", "w250 w3 w40 w99", "w299", "w1 w2 w3 w4 w5 w6"):
        for k in (1, 10, 400):
            check(lexical, corpus, query, k)


@pytest.mark.parametrize("constants", CONSTANTS, ids=str)
def test_scores_equal_the_formula_when_constants_are_others(lexical: Any, constants: BM25) -> None:
    """F9: any k1 and b give the scores of the formula, cold and remembered, after additions and deletions too."""
    corpus = texts(200)
    lexical.write(*(Document(doc_id, text) for doc_id, text in corpus.items()))
    for query in ("w0", "w3 w250", "w1 w1 w7 nowhere", "w0 w7"):
        for k in (1, 10, 500):
            check(lexical, corpus, query, k, constants)
    more = {f"more {doc_id}": text for doc_id, text in texts(40, seed=1).items()}
    lexical.write(*(Document(doc_id, text) for doc_id, text in more.items()))
    corpus |= more
    check(lexical, corpus, "w0 w7 w50", 500, constants)
    gone = random.Random(2).sample(sorted(corpus), 60)  # noqa: S311 -- a repeatable test, no secret
    lexical.delete(*gone)
    check(lexical, {doc_id: text for doc_id, text in corpus.items() if doc_id not in gone}, "w0 w7 w50", 500, constants)


def test_counts_and_lengths_are_exact_when_documents_are_long(lexical: Any) -> None:
    """F9: with constants of one's own, a document of thousands of words is as long as it is, in both engines."""
    rng = random.Random(3)  # noqa: S311 -- a repeatable test, no secret
    corpus = {
        f"d{n}": " ".join(["river"] * times + ["stone"] * (length - times))
        for n, (length, times) in enumerate((rng.randint(1, 3000), rng.randint(1, 1200)) for _ in range(60))
        if times < length
    }
    lexical.write(*(Document(doc_id, text) for doc_id, text in corpus.items()))
    check(lexical, corpus, "river stone", 100, BM25(2, 0.3))


def test_titles_filters_and_phrases_count_when_constants_are_others(lexical: Any) -> None:
    """F9: constants change scores, not what is found."""
    given = {"a": ("apple", "pie of apple"), "b": ("pie", "apple pie"), "c": ("", "apple and cake, a pie")}
    lexical.write(*(Document(i, text, title=title, metadata={"i": i}) for i, (title, text) in given.items()))
    condition = parse_filter({"i": {"$ne": "b"}})
    for options in ({}, {"phrases": ["apple pie"]}, {"title_weight": 2.0}, {"condition": condition}):
        usual = lexical.index.search("apple pie", 10, **options)
        other = lexical.index.search("apple pie", 10, **options, constants=BM25(0.5, 0.2))
        assert sorted(usual.rows.tolist()) == sorted(other.rows.tolist())
        assert usual.scores.tolist() != other.scores.tolist()


def test_a_repeated_query_word_counts_as_often_when_it_is_repeated(lexical: Any) -> None:
    """A word that the query has three times adds three times its score, in every engine."""
    corpus = texts(100)
    lexical.write(*(Document(doc_id, text) for doc_id, text in corpus.items()))
    check(lexical, corpus, "w20 w20 w20 w3", 50)


def test_scores_are_positive_when_half_or_all_documents_have_the_word(lexical: Any) -> None:
    """S2, S3: a word in exactly half of the documents, or in all, scores above 0 everywhere it is."""
    lexical.write(Document("a", "apple river"), Document("b", "apple stone"))
    half, everywhere = lexical.index.search("river", 5), lexical.index.search("apple", 5)
    assert lexical.ids(half) == ["a"]
    assert lexical.ids(everywhere) == ["a", "b"]
    assert half.scores[0] > 0
    assert (everywhere.scores > 0).all()


def test_nothing_is_found_when_the_corpus_has_no_words(lexical: Any) -> None:
    """S4: an empty corpus, and one whose documents are all empty, give no hits."""
    assert found(lexical, "apple") == []
    lexical.write(Document("a", ""), Document("b", "  "), Document("c", "the of and"))
    assert found(lexical, "apple") == []


@pytest.mark.parametrize("query", ["", "   ", "the of and", "…!?", "zebra"])
def test_nothing_is_found_when_the_query_matches_nothing(lexical: Any, query: str) -> None:
    """S5: an empty query, stop words alone, signs alone, and an unknown word give no hits."""
    lexical.write(Document("a", "the apple of the tree"), Document("b", "and pears"))
    assert found(lexical, query) == []


def test_nothing_is_found_when_k_is_zero(lexical: Any) -> None:
    """S67: k=0 gives no hits."""
    lexical.write(Document("a", "apple"))
    assert found(lexical, "apple", 0) == []


def test_words_are_found_when_they_are_not_spaced_or_single_letters(lexical: Any) -> None:
    """S7: 苹果 is found in 我喜欢苹果, and the query "R" finds the language R."""
    lexical.write(
        Document("zh", "我喜欢苹果"), Document("r", "statistics in R"), Document("py", "statistics in Python")
    )
    assert found(lexical, "苹果") == ["zh"]
    assert found(lexical, "R") == ["r"]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("csv.reader", "csv"),
        ("read csv", "csv"),
        ("multi-agent", "agents"),
        ("C++", "cpp"),
        ("C#", "csharp"),
        ("running readers'", "stems"),
        ("CAFÉ", "accent"),
        ("cafe\u0301", "accent"),
        ("हिन्दी", "hindi"),
    ],
)
def test_a_document_is_found_when_its_name_is_written_otherwise(lexical: Any, query: str, wanted: str) -> None:
    """Identifiers, inflected words, accents composed or not, and Indic words find their document first."""
    lexical.write(
        Document("csv", "csv.reader and read_csv return rows"),
        Document("agents", "a multi-agent system"),
        Document("cpp", "templates in C++ only"),
        Document("csharp", "generics in C# only"),
        Document("c", "pointers in C only"),
        Document("stems", "the reader's run"),
        Document("accent", "a café in town"),
        Document("hindi", "मैं हिन्दी बोलता हूँ"),
    )
    assert found(lexical, query)[0] == wanted


@pytest.mark.parametrize(
    "query",
    [
        "what's the…?",
        "AND",
        "OR NOT",
        "NEAR(",
        "multi-agent",
        '"',
        "'",
        "\0",
        "a\0b",
        "body:apple",
        "apple*",
        "apple~2^3",
        "[a TO z]",
        "((((",
        "\\",
        "\ud800",
        "🙂 apple",
        "x" * 100_000,
        "apple " * 5000,
    ],
)
def test_no_query_raises_when_it_looks_like_syntax(lexical: Any, query: str) -> None:
    """S9: text is never parsed as a query, so no text can raise."""
    lexical.write(Document("a", "apple pie, what's new"), Document("b", "x" * 100_000))
    lexical.index.search(query, 10)


def test_a_document_is_found_when_it_is_added_later(lexical: Any) -> None:
    """S21: a document added to a searched index is found, and every score is that of a fresh build."""
    corpus = texts(150, seed=2)
    documents = [Document(doc_id, text) for doc_id, text in corpus.items()]
    lexical.write(*documents[:100])
    lexical.index.search("w1 w2", 5)
    lexical.write(*documents[100:149])
    lexical.write(documents[149])
    check(lexical, corpus, "w1 w2 w30", 150)
    assert "d149" in found(lexical, corpus["d149"], 5)


def test_a_deleted_document_is_not_found_when_it_matched_best(lexical: Any) -> None:
    """A deleted document is gone at once, and an upsert leaves only the new text to be found."""
    lexical.write(*(Document(f"d{i}", f"apple number{i}") for i in range(50)))
    lexical.delete("d3")
    assert found(lexical, "number3") == []
    lexical.write(Document("d4", "pear"), replace=True)
    assert found(lexical, "number4") == []
    assert found(lexical, "pear") == ["d4"]
    assert len(found(lexical, "apple", 100)) == 48


def test_scores_equal_a_fresh_build_when_many_were_deleted(lexical: Any) -> None:
    """Beyond a tenth of tombstones the index is built again, and its scores are those of the survivors alone."""
    corpus = texts(200, seed=3)
    lexical.write(*(Document(doc_id, text) for doc_id, text in corpus.items()))
    gone = [f"d{i}" for i in range(0, 200, 4)]
    lexical.delete(*gone)
    check(lexical, {doc_id: text for doc_id, text in corpus.items() if doc_id not in gone}, "w0 w7 w50", 200)


def test_ties_are_ordered_by_row_when_scores_are_equal(lexical: Any) -> None:
    """Equal documents come in the order of insertion, also when the segments they are in were written otherwise."""
    for start in range(0, 300, 30):
        lexical.write(*(Document(f"d{i}", "apple pie") for i in range(start, start + 30)))
    lexical.write(Document("d5", "apple pie"), replace=True)
    rows = lexical.index.search("apple", 40).rows.tolist()
    assert rows == sorted(rows)
    assert lexical.ids(lexical.index.search("apple", 40)) == [f"d{i}" for i in range(41) if i != 5]


def test_a_title_counts_more_when_it_has_a_weight(lexical: Any) -> None:
    """The score is that of title and text together, plus the weight times that of the title among all titles."""
    given = {"d0": ("apple pie", "sugar flour"), "d1": ("", "apple day apple"), "d2": ("flour", "apple sugar apple")}
    lexical.write(*(Document(doc_id, text, title) for doc_id, (title, text) in given.items()))
    full = {doc_id: f"{title} {text}".split() for doc_id, (title, text) in given.items()}
    titles = {doc_id: title.split() for doc_id, (title, _) in given.items()}
    whole, alone = bm25(full, ["apple", "flour"]), bm25(titles, ["apple", "flour"])
    wanted = {doc_id: whole[doc_id] + 2.5 * alone.get(doc_id, 0) for doc_id in whole}
    result = lexical.index.search("apple flour", 10, title_weight=2.5)
    scores = dict(zip(lexical.ids(result), result.scores.tolist(), strict=True))
    assert scores == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize(
    ("phrase", "ids"),
    [
        ("machine learning", ["d0", "d3", "d4"]),
        ("learning machines", ["d1", "d3"]),
        ("state of the art", ["d2"]),
        ("the", ["d0", "d1", "d2", "d3", "d4"]),
        ("苹果", ["d3"]),
        ("果苹", ["d4"]),
        ("learning 苹果", ["d3"]),
        ('"AND (', ["d0", "d1", "d2", "d3", "d4"]),
        ("apple pie", []),
        ("apple's", ["d0", "d1", "d2", "d3", "d4"]),
    ],
)
def test_only_documents_with_the_phrase_are_found_when_there_is_one(lexical: Any, phrase: str, ids: list[str]) -> None:
    """The words of a phrase stand side by side in any form of theirs, stop words between them left out."""
    lexical.write(
        Document("d0", "apple: machine learning in brief"),
        Document("d1", "apple: a learning machine"),
        Document("d2", "apple: the state of the art"),
        Document("d3", "apple: machines learn; machine-learning 我喜欢苹果"),
        Document("d4", "apple: a machine that is learning slowly 果 苹"),
    )
    result = lexical.index.search("apple", 10, phrases=[phrase])
    assert sorted(lexical.ids(result)) == ids
    assert set(result.scores.tolist()) <= set(lexical.index.search("apple", 10).scores.tolist())


def test_index_is_the_same_when_it_is_opened_again(lexical: Any) -> None:
    """Saved, opened and caught up, an index answers as it did, with the changes since it was saved."""
    corpus = texts(120, seed=4)
    documents = [Document(doc_id, text) for doc_id, text in corpus.items()]
    lexical.write(*documents[:100])
    lexical.index.save(durable=True)
    lexical.store.write(documents[100:])
    lexical.index.close()
    lexical.index = lexical.reopen()
    lexical.catch_up()
    check(lexical, corpus, "w1 w9 w80", 120)


def test_index_equals_the_formula_when_changes_are_random(lexical: Any) -> None:
    """S13: after each of 60 seeded changes the hits are those of a model; scores too once tombstones are cleared."""
    rng = random.Random(5)  # noqa: S311 -- a repeatable test, no secret
    pool = list(texts(80, seed=5).values())
    corpus: dict[str, str] = {}
    for step in range(60):
        doc_id = f"d{rng.randrange(25)}"
        if corpus and rng.random() < 0.3:
            doc_id = rng.choice(sorted(corpus))
            lexical.delete(doc_id)
            del corpus[doc_id]
        else:
            lexical.write(Document(doc_id, pool[step]), replace=True)
            corpus[doc_id] = pool[step]
        words = {known: text.split() for known, text in corpus.items()}
        query = f"w{rng.randrange(20)} w{rng.randrange(300)}"
        if corpus:
            assert set(found(lexical, query, 100)) == set(bm25(words, query.split()))
