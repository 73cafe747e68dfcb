"""A cheap guess at the language of a text: by its script, and by common words where a script has several languages."""

from __future__ import annotations

import re
from collections import Counter

_SAMPLE = 20_000  # characters from the middle, where no title page or table of contents stands
_MIN_LETTERS = 40
_SCRIPTS = (
    ("kana", re.compile("[\u3041-\u30ff]")),
    ("han", re.compile("[\u4e00-\u9fff]")),
    ("ko", re.compile("[\uac00-\ud7af]")),
    ("arabic", re.compile("[\u0620-\u06ff]")),
    ("he", re.compile("[\u05d0-\u05ea]")),
    ("cyrillic", re.compile("[\u0400-\u04ff]")),
    ("el", re.compile("[\u0370-\u03ff]")),
    ("hi", re.compile("[\u0904-\u0939]")),
    ("th", re.compile("[\u0e01-\u0e4e]")),
    ("latin", re.compile("[a-zA-Z\u00c0-\u024f]")),
)
_PERSIAN, _ARABIC = re.compile("[پچژگیک]"), re.compile("[ةيكىأإ]")
_LATIN_WORD = re.compile(r"[a-zà-ÿß]{2,}")  # one letter alone is a formula as often as a word
_COMMON = {
    "en": "the of and to in is that for it with as are this be on by or an from not which",
    "de": "der die das und ist nicht mit ein eine den von zu im auf für werden sich dem auch als",
    "fr": "le la les des et est une dans pour que qui sur pas par avec du au ce sont plus",
    "es": "el la los las y es una en por que con para del se no como su al más lo",
    "it": "il la di che un una per non con del della sono si gli le nel come anche",
    "pt": "os as uma em por que com para do da não se como mais dos ao",
    "nl": "de het een en van is niet dat op te zijn voor met die aan er door wordt ook bij",
}
_COMMON_SETS = {language: frozenset(words.split()) for language, words in _COMMON.items()}
_MIN_SHARE = 0.12  # of the words; English prose has about 0.35 of these, a list of names next to none


def guess(text: str) -> str:
    """ISO 639-1 code of a text, or an empty string where the signs are weak."""
    start = max(0, (len(text) - _SAMPLE) // 2)
    sample = text[start : start + _SAMPLE]
    count = Counter({name: len(pattern.findall(sample)) for name, pattern in _SCRIPTS})
    letters = sum(count.values())
    if letters < _MIN_LETTERS:
        return ""
    if count["kana"] > 0.1 * (count["kana"] + count["han"]) and count["kana"] > 0.2 * letters:
        return "ja"
    script, times = count.most_common(1)[0]
    if times < 0.5 * letters:
        return ""
    return _by_letters(script, sample)


def _by_letters(script: str, sample: str) -> str:
    if script == "latin":
        return _by_words(sample)
    if script == "arabic":
        persian, arabic = len(_PERSIAN.findall(sample)), len(_ARABIC.findall(sample))
        return "fa" if persian > 2 * arabic else "ar" if arabic > 2 * persian else ""
    return {"han": "zh", "kana": "ja", "cyrillic": "ru"}.get(script, script)


def _by_words(sample: str) -> str:
    words = _LATIN_WORD.findall(sample.lower())
    shares = Counter({language: sum(word in common for word in words) for language, common in _COMMON_SETS.items()})
    (best, first), (_, second) = shares.most_common(2)
    return best if first > _MIN_SHARE * len(words) and first > 1.15 * second else ""
