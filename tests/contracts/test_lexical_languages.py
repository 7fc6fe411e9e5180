"""Pages of text in many languages: each document is found by what its readers would type."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any

import pytest

from backends.text.analyzer import Analyzer
from vectorsearch.collection.index.lexical.lexical_rank_bm25 import RankBM25Index
from vectorsearch.collection.index.lexical.lexical_tantivy import TantivyIndex
from vectorsearch.collection.storage.sqlite.store import Store
from vectorsearch.types import Document

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# By language: what is in the library, the river and the kitchen of it; then queries, each with what it must find first.
PAGES: dict[str, tuple[tuple[str, str, str], list[tuple[str, int]]]] = {
    "ar": (
        (
            "تَحْتَوِي المَكْتَبَةُ عَلَى كُتُبٍ قَدِيمَةٍ وَمَخْطُوطَاتٍ نَادِرَة.",
            "يجري النـــهر بين الجبال، وعلى ضفافه ٣٤ قرية.",
            "تطبخ الأم العدس مع الأرز والبصل في المساء.",
        ),
        [("مكتبه كتب", 0), ("المكتبة القديمة", 0), ("النهر", 1), ("34 قرية", 1), ("ارز", 2), ("ﺍﻟﻌﺪﺱ", 2)],
    ),
    "de": (
        (
            "In der Bücherei stehen alte Bücher, und über den Straßen von Gießen liegt Stille.",
            "Der Fluss fließt durch drei Täler; am Ufer wachsen Erlen.",
            "Die Köchin brät Zwie\u00adbeln und kocht Klöße für das Fest.",
        ),
        [("altes Buch", 0), ("STRASSE", 0), ("Täler", 1), ("FLIESST", 1), ("Zwiebel", 2), ("klo\u0308ße", 2)],
    ),
    "el": (
        (
            "Η βιβλιοθήκη έχει παλιά βιβλία και σπάνια χειρόγραφα.",
            "Ο ποταμός περνά ανάμεσα στα βουνά και φτάνει στη θάλασσα.",
            "Ο μάγειρας βράζει φακές με κρεμμύδι και δάφνη.",
        ),
        [("ΒΙΒΛΙΑ", 0), ("βιβλία", 0), ("ΠΟΤΑΜΟΣ", 1), ("βουνό", 1), ("κρεμμύδια", 2), ("φακη", 2)],
    ),
    "en": (
        (
            "The library\u2019s rare books were catalogued by the U.S.A. archive; don\u2019t touch them.",
            "Three rivers are running to the co\u00adast, past Ｂｒｉｓｔｏｌ.",
            "The cook\ufeff is frying onions \U0001f9c5 and baking naïve pies.",
        ),
        [("cataloguing book", 0), ("usa", 0), ("libraries", 0), ("river coast", 1), ("bristol", 1), ("\U0001f9c5", 2)],
    ),
    "es": (
        (
            "La biblioteca guarda canciones antiguas y libros de poesía.",
            "El río nace en la montaña y desemboca en el mar.",
            "La cocinera prepara lentejas con cebollas y pimentón.",
        ),
        [("canción", 0), ("libro", 0), ("RÍO", 1), ("montañas", 1), ("cebolla", 2), ("lenteja", 2)],
    ),
    "fr": (
        (
            "À la bibliothèque, l\u2019élève lit d\u2019anciens manuscrits.",
            "La rivière traverse les vallées, puis rejoint l\u2019océan pendant l\u2019été.",
            "Le cuisinier épluche les oignons et prépare un œuf.",
        ),
        [("élèves", 0), ("MANUSCRITS", 0), ("l'océan", 1), ("été", 1), ("vallée", 1), ("oignon", 2)],
    ),
    "he": (
        (
            "בַּסִּפְרִיָּה יֵשׁ סְפָרִים עַתִּיקִים.",
            "הנהר זורם בין ההרים אל הים.",
            "הטבח מבשל עדשים עם בצל.",
        ),
        [("בספריה", 0), ("ספרים", 0), ("הנהר", 1), ("נהר הים", 1), ("בָּצָל", 2)],
    ),
    "hi": (
        (
            "पुस्तकालय में पुरानी किताबें और क़लम रखे हैं।",
            "नदी पहाड़ों से निकलकर समुद्र में मिलती है, ३ गाँव पार करके।",
            "रसोइया प्याज़ और दाल पका रहा है।",
        ),
        [("किताब", 0), ("कलम", 0), ("पहाड़", 1), ("3 गाँव", 1), ("प्याज", 2), ("\u0926\u093e\u0932", 2)],
    ),
    "ja": (
        (
            "図書館には古い本と珍しい写本があります。",
            "川は山の間を流れて海に注ぐ。",
            "料理人は玉ねぎとﾚﾝｽﾞ豆を煮る。",
        ),
        [("図書館", 0), ("写本", 0), ("海", 1), ("レンズ豆", 2), ("玉ねぎ", 2)],
    ),
    "ko": (
        (
            "도서관에는 오래된 책과 희귀한 필사본이 있다.",
            "강은 산 사이로 흘러 바다로 들어간다.",
            "요리사가 양파와 렌틸콩을 끓인다.",
        ),
        [("도서관", 0), ("필사본", 0), ("바다", 1), ("양파", 2), ("렌틸콩", 2)],
    ),
    "fa": (
        (
            "کتابخانه کتاب\u200cهای قدیمی دارد.",
            "رود از میان کوه\u200cها می\u200cگذرد و به دریا می\u200cریزد.",
            "آشپز پیاز و عدس می\u200cپزد.",
        ),
        [("کتاب ها", 0), ("كتابخانه", 0), ("میگذرد", 1), ("کوه ها", 1), ("می\u200cپزد", 2), ("اشپز", 2)],
    ),
    "ro": (
        (
            "Biblioteca păstrează cărţi vechi şi manuscrise rare.",
            "Râul trece printre munți și se varsă în mare.",
            "Bucătarul fierbe linte cu ceapă și ardei.",
        ),
        [("cărțile", 0), ("și cărți", 0), ("munţii", 1), ("RÂUL", 1), ("ardei", 2)],
    ),
    "ru": (
        (
            "В библиоте\u0301ке хранятся старинные книги и рукописи.",
            "Река течёт между горами и впадает в море.",
            "Повар варит чечевицу с луком и перцем.",
        ),
        [("книга", 0), ("библиотека", 0), ("гора река", 1), ("моря", 1), ("лук", 2), ("чечевица", 2)],
    ),
    "ta": (
        (
            "நூலகத்தில் பழைய புத்தகங்கள் உள்ளன.",
            "ஆறு மலைகளுக்கு இடையே ஓடுகிறது.",
            "சமையல்காரர் வெங்காயம் நறுக்குகிறார்.",
        ),
        [("புத்தகம்", 0), ("ஆறு", 1), ("வெங்காயம்", 2)],
    ),
    "th": (
        (
            "ห้องสมุดมีหนังสือเก่าและต้นฉบับหายาก",
            "แม่น้ำไหลผ่านภูเขาลงสู่ทะเล ๓ สาย",
            "พ่อครัวต้มถั่วกับหัวหอม",
        ),
        [("หนังสือ", 0), ("ห้องสมุด", 0), ("ทะเล", 1), ("3", 1), ("หัวหอม", 2)],
    ),
    "tr": (
        (
            "İstanbul'daki kütüphanede eski kitaplar ve IŞIK dergileri var.",
            "Irmak dağların arasından akıp denize dökülür.",
            "Aşçı soğan ve mercimek pişiriyor.",
        ),
        [("istanbul", 0), ("ışık", 0), ("kitap", 0), ("ırmak", 1), ("denizi", 1), ("SOĞAN", 2)],
    ),
    "zh": (
        (
            "图书馆里有古老的书籍和珍贵的手稿。",
            "河流穿过山谷，流入大海。",
            "厨师在煮洋葱和扁豆，用了１２克盐。",
        ),
        [("手稿", 0), ("古老书籍", 0), ("大海", 1), ("洋葱", 2), ("12克", 2)],
    ),
}
_UNSTEMMED = ("fa", "he", "ja", "ko", "th", "zh")


@pytest.fixture(params=["tantivy", "rank-bm25"])
def engine(request: pytest.FixtureRequest) -> str:
    """Give each engine's name."""
    return str(request.param)


def index_of(engine: str, analyzer: Analyzer, store: Store) -> Any:
    """Return an index of everything in the store."""
    index = RankBM25Index(analyzer) if engine == "rank-bm25" else TantivyIndex(analyzer, None, lineage=store)
    with store.snapshot() as snapshot:
        index.catch_up(snapshot, lambda _: None)
    return index


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Give an empty store."""
    store = Store(tmp_path / "db", durable=False)
    yield store
    store.close()


@pytest.mark.parametrize("language", PAGES)
def test_a_page_is_found_when_it_is_asked_for_as_readers_write(engine: str, language: str, store: Store) -> None:
    """F6, F7, F8: whatever the spelling, form or normal form, the page comes first, and its words can be shown."""
    pages, queries = PAGES[language]
    analyzer = Analyzer(None if language in _UNSTEMMED else language)
    store.write([Document(str(n), page) for n, page in enumerate(pages)])
    index = index_of(engine, analyzer, store)
    for query, wanted in queries:
        for form in ("NFC", "NFD", "NFKC"):
            found = index.search(unicodedata.normalize(form, query), 3)  # type: ignore[arg-type]  # a plain loop
            assert [doc.id for doc in store.fetch(found.rows.tolist())][:1] == [str(wanted)], (query, form)
        assert analyzer.spans(pages[wanted], set(analyzer.words(query))), query
    assert len(queries) >= 3


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
def test_pages_have_the_same_words_when_they_are_stored_otherwise(form: str) -> None:
    """A document's words don't depend on its normal form, in any language."""
    for language, (pages, _) in PAGES.items():
        analyzer = Analyzer(None if language in _UNSTEMMED else language)
        for page in pages:
            assert analyzer.words(unicodedata.normalize(form, page)) == analyzer.words(page)  # type: ignore[arg-type]
