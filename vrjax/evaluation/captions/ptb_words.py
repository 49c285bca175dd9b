"""Penn Treebank words of a caption, as the COCO caption scores count them.

BLEU, CIDEr and METEOR depend on how a text is cut into words. The COCO evaluation cuts with Stanford CoreNLP 3.4.1's
`PTBTokenizer -lowerCase`, a Java program, and leaves out punctuation. The rules here were found by putting texts to
that program and are checked against it (tests/evaluation/captions/test_ptb_words.py); no Java is needed.

Where several rules fit, the one that reads furthest wins, then the first; what a rule must see behind its token counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import regex

# Tokens that the COCO evaluation leaves out. Brackets stay: they come in lower case (-lrb-), its list has capitals.
PUNCTUATION = frozenset({"''", "'", "``", "`", '"', ".", "?", "!", ",", ":", "-", "--", "...", ";"})
# Two of these in a row are one token, which is left out only where the list has it.
_QUOTES = {
    **dict.fromkeys("‘‛‹\x91", "`"), **dict.fromkeys("’›\x92", "'"),
    **dict.fromkeys("“«\x93", "``"), **dict.fromkeys("”»\x94", "''"),
}  # fmt: skip


def _set(ranges: str) -> str:
    """A regular expression's set from ranges of code points in hexadecimal."""
    return "".join("-".join(f"\\u{code}" for code in one.split("-")) for one in ranges.split())


# The program knows Unicode 6, and no character beyond U+FFFF: marks that are part of a word, and characters that are
# tokens of their own. Others are left out; they part the words beside them.
_MARKS = _set("""
02c2-02c5 02d2-02df 0300-036f 0483-0487 0591-05bd 05bf 05c1-05c2 05c4-05c5 05c7 0615-061a 064b-065e 0670 06d6-06dc
06df-06e4 06e7-06e8 06ea-06ed 0711 0730-074a 07a6-07b0 07eb-07f3 0900-0903 093c 093e-094e 0951-0955 0962-0963 0981-0983
09bc 09be-09c4 09c7-09c8 09cb-09cd 09d7 09e2-09e3 0a01-0a03 0a3c 0a3e-0a42 0a47-0a48 0a4b-0a4d 0a81-0a83 0abc 0abe-0ac5
0ac7-0ac9 0acb-0acd 0b82 0bbe-0bc2 0bc6-0bc8 0bca-0bcd 0c01-0c03 0c3e-0c44 0c46-0c48 0c4a-0c4d 0c55-0c56 0d3e-0d44
0d46-0d48 0e31 0e34-0e3a 0e47-0e4e 0eb1 0eb4-0ebc 0ec8-0ecd 1885-1886
""")
_SYMBOLS = _set("""
0022-002c 002e-002f 003a-0040 005b-0060 007b-007e 00a1-00a9 00ab-00ac 00ae-00b4 00b6-00b9 00bb-00bf 00d7 00f7 037e 0387
0589 05be 05c0 05c3 05c6 05f3-05f4 0600-0603 0606-060c 0614 061b 061e-061f 066a 066d 06d4 0700-070d 07f6-07f8 0964-0965
0e3f 0e4f 1fbd 2013-2023 2026 2030-203b 203e-2042 2044 2070 2074-207e 2080-208e 20a0 20a4 20ac 2100-2101 2103-2106
2108-2109 2114 2116-2118 211e-2123 2125 2127 2129 212e 213a-213b 2140-2144 214a-214d 214f 2153-215e 2190-2bff 3001-3002
3012 30fb ff01-ff0f ff1a-ff20 ff3b-ff40 ff5b-ff65 ffe0-ffe1 ffe5-ffe6 0021 002d
""")
_LETTER = rf"[[\p{{L}}&&\x00-\uffff]{_MARKS}]"
_WORD_PART = rf"{_LETTER}[[[\p{{L}}\p{{Nd}}]&&\x00-\uffff]{_MARKS}]*"
_WORD = rf"{_WORD_PART}(?:[.!?]{_WORD_PART})*"
_APOSTROPHE = r"['’\x92]"
_QUOTE = r"['’\x92`‘‛\x91]"
_HYPHEN = r"[-_֊‐‑]"
_ALNUM = r"[[\p{L}\p{Nd}]&&\x00-\uffff]"
_NUMBER = r"(?:\p{Nd}*(?:[.:,٫٬]\p{Nd}+)+|\p{Nd}+)"
_ACRONYM = r"[A-Za-z](?:\.[A-Za-z])+"
# O'Neil, d'Artagnan, x-ray, a_b, mid-1990s
_COMPOUND_PART = rf"(?:[dDoOlL]{_QUOTE}(?={_ALNUM}{{2}}))?{_ALNUM}+"
_COMPOUND = rf"{_COMPOUND_PART}(?:{_HYPHEN}{_COMPOUND_PART})*"
_SLASHED_PART = r"[A-Za-z0-9]+(?:-[A-Za-z]+){0,2}"
_HYPHENATED = rf"[A-Za-z0-9][A-Za-z0-9.,]*(?:-(?:{_ACRONYM}\.|[A-Za-z0-9]+))+"
_URL_PATH = r"/[^\s\"<>|()]+[^\s\"<>|.!?(){},-]"
_GAP = r"[ \xa0]"
_TAG = r"(?:</[A-Za-z][\w:.-]*>|<[A-Za-z][A-Za-z0-9:._-]*(?: [^<>\n]*)?/?>|<[!?][A-Za-z-][^>\n]*>)"

# Words whose full stop belongs to them, wherever they stand; then those of them that part from a letter behind it.
_TITLES = """
adj adm adv alex assoc atty ave brig capt cf cie col cpl dept det dr drs ens ft gen gov hon insp jos lt maj mfg mme mr
mrs ms mt mtg pfc ph pres prof pvt rep reps rev sen sens sfc sgt spc st ste vs wm
"""
_ENDINGS = """
al ala apr aug bhd blvd bros calif co colo conn corp cos ct dak dec esq est etc ext feb fla fri ga inc ind intl jan jr
jul jun kan kans ky ltd mar md mich mo mon mont neb nev nov oct penn plc pte pty rd rt sep sept seq sq sr sys tel tenn
thu thurs tue tues univ va vt wed wis wyo
"""
# Words of their own in lower case.
_CAPITAL_ENDINGS = "Ark Az Del Ill La Mass Miss Ore Pa Tex Wash"
# Abbreviations only before a number.
_NUMBERED = "art ca fig figs no nos op pp prop"
# Before these a single letter with a full stop ends its sentence.
_STARTS = """
a about according additionally after an as at but earlier he her here however if in it last many more now once one other
our she since so some such that the their then there these they this we what when while yet you
"""
_FILE_ENDINGS = """
bat bmp bz2 c cgi class cpp dll doc docx exe gif gz h htm html jar java jpeg jpg mov mp3 pdf php pl png ppt ps py sql
tar txt wav x xml zip
"""


def _any(words: str) -> str:
    """A pattern for any of these words, in lower or upper case."""
    return f"(?i:{'|'.join(words.split())})"


_ENDING = "|".join([_any(_ENDINGS), *(f"{word[0]}{_any(word[1:])}" for word in _CAPITAL_ENDINGS.split())])
# Spelled with a capital, or in capitals.
_START = "|".join(form for word in [*_STARTS.split(), "mr[.]", "ms[.]"] for form in (word.capitalize(), word.upper()))
# 's and the like; a straight apostrophe is one only where no further letter follows.
_CONTRACTION = r"(?:'(?i:[msd]|re|ve|ll)(?![A-Za-z])|[’\x92](?i:[msd]|re|ve|ll))"

Cut = Callable[[str], list[str]]


def _whole(token: str) -> list[str]:
    return [token]


def _plain_apostrophe(token: str) -> list[str]:
    return [token.replace("’", "'").replace("\x92", "'")]


def _at(place: int) -> Cut:
    return lambda token: [token[:place], token[place:]]


def _as(*tokens: str) -> Cut:
    return lambda token: list(tokens)


@dataclass(frozen=True)
class _Rule:
    """token: what it takes; behind: what must follow, which counts when the furthest rule is sought."""

    token: str
    behind: str = ""
    cut: Cut = _whole

    def compile(self) -> tuple[regex.Pattern[str], Cut]:
        return regex.compile(rf"(?P<token>{self.token}){self.behind}", regex.VERSION1), self.cut


_RULES = [
    rule.compile()
    for rule in (
        # Words that are two.
        _Rule(r"(?i:cannot|gonna|gotta|gimme|lemme|wanna)", cut=_at(3)),
        _Rule(rf"{_APOSTROPHE}[tT](?i:is|was)", cut=lambda token: [*_plain_apostrophe(token[:2]), token[2:]]),
        # Markup.
        _Rule(_TAG),
        _Rule(r"(?i:&amp;)", cut=_as("&")),
        _Rule(r"(?i:&lt;)", cut=_as("<")),
        _Rule(r"(?i:&gt;)", cut=_as(">")),
        _Rule(r"(?i:&(?:quot|nbsp|apos);)", cut=_as()),
        _Rule(r"&[mn]dash;", cut=_as("--")),
        _Rule(r"&#[0-9]+;"),
        # Words and contractions.
        _Rule(rf"(?:{_ENDING})\.", behind=r"[\s\S]"),
        _Rule(rf"(?:{_WORD}|{_COMPOUND})", behind=_CONTRACTION),
        _Rule(_WORD),
        # Names and the like: T'Pol, Hawai'i, D'Artagnan.
        _Rule(rf"(?:[A-HJ-XZn]{_QUOTE}\p{{L}}{{2}}|\p{{L}}+[aeiouyAEIOUY]{_QUOTE}[aeiouA-Z])\p{{L}}*"),
        _Rule(r"[A-Za-z]*[A-MO-Za-mo-z]", behind=rf"[nN]{_APOSTROPHE}[tT]"),
        _Rule(rf"[nN]{_APOSTROPHE}[tT][\p{{L}}\p{{M}}]*", cut=_plain_apostrophe),
        _Rule(_CONTRACTION, cut=_plain_apostrophe),
        _Rule(
            rf"{_APOSTROPHE}(?:[nN]{_APOSTROPHE}|[nN](?=\s)|[0-9]{{2}}(?=\s)|[eE]m|[0-9]0s|till?|[cC]ause)"
            rf"|[lLdDjJ]{_APOSTROPHE}|(?i:dunkin|somethin|ol){_APOSTROPHE}"
            rf"|(?i:e{_APOSTROPHE}er|c{_APOSTROPHE}mon|ma{_APOSTROPHE}am|[no]e?{_APOSTROPHE}er|o{_APOSTROPHE}clock)"
        ),
        _Rule(rf"[yY]{_APOSTROPHE}", behind=r"\p{L}"),
        # Numbers.
        _Rule(rf"[-+]?{_NUMBER}"),
        _Rule(r"(?:\p{Nd}{1,4}[- \xa0])?\p{Nd}{1,4}(?:\\?/|⁄)\p{Nd}{1,4}"),
        _Rule(r"\p{Nd}{1,2}[-/]\p{Nd}{1,2}[-/]\p{Nd}{2,4}"),
        _Rule(r"[⁺⁻₊₋]?(?:[⁰¹²³⁴-⁹]+|[₀-₉]+)"),
        _Rule(
            rf"(?:\([0-9]{{2,3}}\){_GAP}?|(?:\+\+?)?(?:[0-9]{{2,4}}[- \xa0])?[0-9]{{2,4}}[- \xa0])"
            r"[0-9]{3,4}[- \xa0]?[0-9]{3,5}"
        ),
        _Rule("½", cut=_as("1/2")),
        _Rule("¼", cut=_as("1/4")),
        _Rule("¾", cut=_as("3/4")),
        _Rule("⅓", cut=_as("1/3")),
        _Rule("⅔", cut=_as("2/3")),
        # Compounds.
        _Rule(_COMPOUND),
        _Rule(r"[A-Z]+(?:(?:[+&]|&amp;)[A-Z]+)+", cut=lambda token: [token.replace("&amp;", "&")]),
        _Rule(rf"{_SLASHED_PART}(?:\\?/{_SLASHED_PART}){{1,2}}"),
        _Rule(_HYPHENATED),
        # Abbreviations.
        _Rule(rf"{_ACRONYM}\.?"),
        _Rule(rf"(?:{_ENDING}|{_any(_TITLES)}|[A-Za-z])\."),
        _Rule(r"(?i:ph|ed)\.[dD]\."),
        _Rule(r"[A-Za-z]", behind=rf"\.\s+(?:{_START}|{_TAG})\s"),
        _Rule(rf"{_any(_NUMBERED)}\.", behind=r"\s?\p{Nd}"),
        _Rule(rf"(?:{_WORD}|{_COMPOUND}|{_HYPHENATED}|[A-Z]+(?:[+&][A-Z]+)+)\.", behind="[,;:]"),
        # Addresses and names.
        _Rule(rf"{_ALNUM}+(?:\.{_ALNUM}+)*\.{_any(_FILE_ENDINGS)}", behind=r"(?:[\s.,!?]|\Z)"),
        _Rule(r"(?i:https?)://[^\s\"<>|(){}]+[^\s\"<>|.!?(){},-]"),
        _Rule(rf"(?i:www)\.(?:[^\s\"`'<>|.!?,_$()]+\.)+[A-Za-z]{{2,4}}(?:{_URL_PATH})?"),
        _Rule(rf"(?:[^\s\"`'<>|.!?$(){{}}\x2c-\x5f]+\.)+(?i:com|net|org|edu)(?:{_URL_PATH})?"),
        _Rule(r"<?[A-Za-z0-9][^\s\"<>|(){}]{0,250}@(?:[^\s\"<>|(){}.]+\.)*[^\s\"<>|(){}.]+>?"),
        _Rule(r"@[A-Za-z_][A-Za-z0-9_]*|#\p{L}+"),
        _Rule(r"(?i:c\+\+|[cf]#)"),
        # Marks.
        _Rule(r"[A-Z]*\$|#+|@+"),
        _Rule(r"[<>]?[:;=][-o*']?[()DPdpO\\{@|\[\]]", behind=r"(?![A-Za-z0-9])"),
        _Rule(r"\([-^x=~<>'][_.]?[-^x=~<>']\)|[-^x=~<>']_[-^x=~<>']"),
        _Rule(r"<<|>>"),
        _Rule(rf"\.{{3,5}}|(?:\.{_GAP}){{2,4}}\.|…", cut=_as("...")),
        _Rule(r"-{2,4}|[–—―\x96\x97]", cut=_as("--")),
        _Rule(r"-{5,}"),
        _Rule(r"[?!]+|\*+|\\\*|_+"),
        _Rule(r"\(", cut=_as("-lrb-")),
        _Rule(r"\)", cut=_as("-rrb-")),
        _Rule(r"\[", cut=_as("-lsb-")),
        _Rule(r"\]", cut=_as("-rsb-")),
        _Rule(r"\{", cut=_as("-lcb-")),
        _Rule(r"\}", cut=_as("-rcb-")),
        _Rule(r"[¤₠€\x80]", cut=_as("$")),
        _Rule("£", cut=_as("#")),
        _Rule("¢", cut=_as("cents")),
        _Rule("''?|``?|\""),
        _Rule(f"[{''.join(_QUOTES)}]{{1,2}}", cut=lambda token: ["".join(_QUOTES[mark] for mark in token)]),
        _Rule(rf"[{_SYMBOLS}]"),
    )
]
_REACH = 500  # characters that a rule may look at; without a bound each would search the whole text
# A word of ASCII letters before a space or the end: no other rule reaches further.
_PLAIN = regex.compile(r"[A-Za-z]+(?=,?(?:[ \n]|\Z))")
_TWO_WORDS = frozenset({"cannot", "gonna", "gotta", "gimme", "lemme", "wanna"})
_LINE_ENDS = regex.compile(r"\r\n|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")


def ptb_words(captions: Sequence[str]) -> list[list[str]]:
    """Words of each caption in lower case, without punctuation.

    As in the COCO evaluation the captions are read as the lines of one text, and a rule may look into the next one:
    "No." keeps its full stop before a caption that starts with a number. So the order matters, a little. Line ends
    within a caption count as spaces; what the Java program cannot tokenize (emoji, some symbols) is left out.
    """
    text = "\n".join(_LINE_ENDS.sub(" ", caption).replace("\xad", "") for caption in captions)
    lines: list[list[str]] = [[]]
    place = 0
    while place < len(text):
        if text[place] == "\n":
            lines.append([])
            place += 1
            continue
        plain = _PLAIN.match(text, place, place + _REACH)
        if plain is not None and plain[0].lower() not in _TWO_WORDS:
            lines[-1].append(plain[0].lower())
            place = plain.end()
            continue
        tokens, place = _next_tokens(text, place)
        for token in tokens:
            token = token.lower().replace("(", "-lrb-").replace(")", "-rrb-")
            if token not in PUNCTUATION:
                lines[-1].extend(token.split())  # a phone number may hold spaces
    return lines if captions else []


def _next_tokens(text: str, place: int) -> tuple[list[str], int]:
    """The tokens of the rule that reads furthest from `place`, and where the next one starts."""
    furthest, end, cut = place, place + 1, None
    for pattern, rule_cut in _rules_from(text[place]):
        match = pattern.match(text, place, place + _REACH)
        if match is not None and match.end() > furthest:
            furthest, end, cut = match.end(), match.end("token"), rule_cut
    return ([] if cut is None else cut(text[place:end])), end


@lru_cache(maxsize=4096)
def _rules_from(first: str) -> list[tuple[regex.Pattern[str], Cut]]:
    """The rules that may match a text that starts with this character."""
    return [rule for rule in _RULES if rule[0].fullmatch(first, partial=True)]
