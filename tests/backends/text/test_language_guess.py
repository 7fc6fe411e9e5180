"""Which language texts seem to be in."""

from __future__ import annotations

import pytest

from backends.text.language_guess import guess_language

TEXTS = {
    "ar": "تقع المكتبة القديمة في وسط المدينة وليست بعيدة عن النهر وفيها كتب كثيرة عن تاريخ البلاد",
    "de": "Die alte Bücherei steht mitten in der Stadt, und sie ist nicht weit von dem Fluss, an dem wir wohnen",
    "el": "Η παλιά βιβλιοθήκη βρίσκεται στο κέντρο της πόλης και δεν είναι μακριά από το ποτάμι",
    "en": "The old library is in the middle of the town, and it is not far from the river that we live by",
    "es": "La vieja biblioteca está en el centro de la ciudad y no se encuentra lejos del río en que vivimos",
    "fi": "Vanha kirjasto on kaupungin keskellä, eikä se ole kaukana joesta, jonka rannalla me olemme olleet",
    "fr": "La vieille bibliothèque est au milieu de la ville et elle n'est pas loin de la rivière où nous sommes",
    "hi": "पुराना पुस्तकालय शहर के बीच में है और वह नदी से दूर नहीं है जिसके किनारे हम रहते हैं",
    "hu": "A régi könyvtár a város közepén van, és nem is messze attól a folyótól, amely mellett mi is lakunk",
    "it": "La vecchia biblioteca è nel mezzo della città e non è lontana dal fiume su cui noi abbiamo la casa",
    "nl": "De oude bibliotheek staat midden in de stad en is niet ver van de rivier waar wij aan wonen, zei hij",
    "pt": "A velha biblioteca está no meio da cidade e não fica longe do rio em que nós também estamos, disse ela",
    "ro": "Biblioteca veche este în mijlocul orașului și nu este departe de râul care a fost curățat după inundații",
    "ru": "Старая библиотека стоит посреди города, и она недалеко от реки, на которой мы живём",
    "sv": "Det gamla biblioteket ligger mitt i staden och det är inte långt från floden där vi har bott",
    "ta": "பழைய நூலகம் நகரத்தின் நடுவில் உள்ளது மற்றும் அது ஆற்றிலிருந்து வெகு தொலைவில் இல்லை",
    "tr": "Eski kütüphane şehrin ortasında ve nehirden çok uzak değil, bu nehir için bir köprü daha olarak yapıldı",
}


@pytest.mark.parametrize("code", TEXTS)
def test_a_language_is_known_when_there_is_enough_of_it(code: str) -> None:
    """F8: each language with a stemmer is, Danish and Norwegian aside, which are too alike; a short text isn't."""
    assert guess_language([TEXTS[code]] * 8) == code
    assert guess_language([TEXTS[code][:30]]) is None


@pytest.mark.parametrize(
    "text",
    [
        "Stara biblioteka stoi w środku miasta i nie jest daleko od rzeki, nad którą mieszkamy z rodziną",
        "Стара бібліотека стоїть посеред міста, і вона недалеко від річки, на якій ми живемо",
        "کتابخانهٔ قدیمی در میان شهر است و از رودخانه‌ای که کنار آن زندگی می‌کنیم دور نیست، پس چرا گفتی",
        "Thư viện cũ nằm ở giữa thành phố và không xa con sông nơi chúng tôi sống",
        "古老的图书馆在城市中心，离我们居住的河边不远。" * 3,
        "alpha beta gamma delta w1 w2 w3 w4 csv json socket thread",
        "",
    ],
)
def test_nothing_is_guessed_when_no_stemmer_fits(text: str) -> None:
    """F8: other languages and lists of names are left alone."""
    assert guess_language([text] * 10) is None
