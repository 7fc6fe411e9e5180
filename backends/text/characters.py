"""Kinds of characters that regular expressions have no name for, each as the inside of a class `[…]`."""

from __future__ import annotations

# Unicode's Default_Ignorable_Code_Point: soft hyphen, zero-width characters and joiners, bidi marks, variation
# selectors, the byte order mark, Hangul fillers, tags. And the skin tones of emoji, and the caps of keys.
IGNORABLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "\u20e3\U0001f3fb-\U0001f3ff"
)
# Marks, which belong to the letter before them: `\w` leaves out the vowel signs of Arabic, Hebrew and Indic scripts.
# Between them lie only letters and unassigned code points.
MARKS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1-\u05c2\u05c4-\u05c5\u05c7\u0610-\u061a\u064b-\u065f"
    "\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u0711-\u07f3\u07fd\u0816-\u082d\u0859-\u085b\u0898-\u08e1"
    "\u08e3-\u0963\u0981-\u09e3\u09fe-\u0a75\u0a81-\u0ae3\u0afa-\u0b63\u0b82-\u0bd7\u0c00-\u0c63\u0c81-\u0c83"
    "\u0cbc-\u0d4d\u0d57-\u0d63\u0d81-\u0df3\u0e31-\u0e3a\u0e47-\u0e4e\u0eb1-\u0ecd\u0f18-\u0f19\u0f35\u0f37"
    "\u0f39\u0f3e-\u0f84\u0f86-\u0fbc\u0fc6\u102b-\u103e\u1056-\u109d\u135d-\u135f\u1712-\u1734\u1752-\u17d3"
    "\u17dd\u180b-\u180d\u180f-\u193b\u1a17-\u1a1b\u1a55-\u1a7f\u1ab0-\u1b44\u1b6b-\u1b73\u1b80-\u1bf3"
    "\u1c24-\u1c37\u1cd0-\u1cd2\u1cd4-\u1dff\u20d0-\u20f0\u2cef-\u2cf1\u2d7f-\u2dff\u302a-\u302f\u3099-\u309a"
    "\ua66f-\ua672\ua674-\ua67d\ua69e-\ua6f1\ua802-\ua827\ua82c\ua880-\ua8c5\ua8e0-\ua8f1\ua8ff-\ua92d"
    "\ua947-\ua953\ua980-\ua9c0\ua9e5-\uaa4d\uaa7b-\uaac1\uaaeb-\uaaef\uaaf5-\uaaf6\uabe3-\uabea\uabec-\uabed"
    "\ufb1e\ufe00-\ufe0f\ufe20-\ufe2f\U000101fd-\U0001037a\U00010a01-\U00010a3f\U00010ae5-\U00010ae6"
    "\U00010d24-\U00010eac\U00010f46-\U00010f50\U00010f82-\U00010f85\U00011000-\U00011046\U00011070-\U000110ba"
    "\U000110c2\U00011100-\U00011134\U00011145-\U00011173\U00011180-\U000111c0\U000111c9-\U000111cc"
    "\U000111ce-\U000111cf\U0001122c-\U00011237\U0001123e\U000112df-\U00011446\U0001145e-\U000114c3"
    "\U000115af-\U000115c0\U000115dc-\U00011640\U000116ab-\U000116b7\U0001171d-\U0001172b\U0001182c-\U0001183a"
    "\U00011930-\U00011943\U000119d1-\U000119e0\U000119e4-\U00011a3e\U00011a47-\U00011a99\U00011c2f-\U00011c3f"
    "\U00011c92-\U00011ef6\U00016af0-\U00016af4\U00016b30-\U00016b36\U00016f4f-\U00016f92\U00016fe4-\U00016ff1"
    "\U0001bc9d-\U0001bc9e\U0001cf00-\U0001cf46\U0001d165-\U0001d169\U0001d16d-\U0001d172\U0001d17b-\U0001d182"
    "\U0001d185-\U0001d18b\U0001d1aa-\U0001d1ad\U0001d242-\U0001d244\U0001da00-\U0001da36\U0001da3b-\U0001da6c"
    "\U0001da75\U0001da84\U0001da9b-\U0001e136\U0001e2ae-\U0001e2ef\U0001e8d0-\U0001e94a"
)
# Signs that NFKC turns into letters or digits, such as trade mark and numero sign; likewise.
BECOMING_LETTERS = (
    "\u20a8\u2100-\u2103\u2105-\u2106\u2109\u2116\u2120-\u2122\u213b\u249c-\u24e9\u2e9f\u2ef3-\u2fd5\u3196-\u319f"
    "\u3200-\u327e\u328a-\u33ff\ufdfc\U0001f110-\U0001f12e\U0001f130-\U0001f14f\U0001f16a-\U0001f16c\U0001f190"
    "\U0001f200-\U0001f251"
)
# Written without spaces between words: Thai, Lao, Burmese, Khmer and their neighbours; kana, Han, bopomofo, Yi. And
# Hangul, whose spaced words carry their particles with them.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\u3005-\u3007\u3021-\u302f\u3031-\u3035\u303b"
    "\u3040-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua48f\ua980-\ua9df\ua9e0-\ua9ff"
    "\uaa60-\uaadf\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
EMOJI = "\u231a\u231b\u23e9-\u23fa\u2600-\u27bf\u2b1b\u2b1c\u2b50\u2b55\U0001f000-\U0001f0ff\U0001f200-\U0001faff"
FLAG_LETTERS = "\U0001f1e6-\U0001f1ff"
# Marks of unspaced scripts: those above and below letters and behind them, and what stacks consonants.
UNSPACED_MARKS = (
    "\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u102b-\u103e\u1056-\u1059\u105e-\u1060\u1062-\u1064"
    "\u1067-\u106d\u1071-\u1074\u1082-\u108d\u108f\u109a-\u109d\u17b6-\u17d3\u17dd\u302a-\u302f\u3099\u309a"
)
