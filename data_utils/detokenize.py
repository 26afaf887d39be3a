"""Text of word corpora as people write it: blanks that only keep tokens apart are left out."""

import re

_LINE_ENDS = {"\n", "<eos>"}
_CLOSING = set(". , ; : ! ? ) ] } % ° ′ ″ … ...".split())  # written without a blank before
_OPENING = {  # word: what the next one must begin with to be written without a blank between
    "(": "", "[": "", "{": "", "#": r"\d", "°": r"\d|[CFNESW]$", "=": "=$", **dict.fromkeys("$£€¥", r"[\d.<N]")}
_NEVER = r"(?!)"
_JOINT = re.compile(r"@([^\w\s@])@")  # a sign within a word or number
_CONTRACTION = re.compile(r"n't|'(s|m|d|t|re|ve|ll)", re.IGNORECASE)
_NO_OWNERS = {"as", "does", "has", "his", "is", "its", "says", "this", "thus", "us", "was", "yes"}  # after them ' opens, as in: was 'good'
_NAME_BEGINS = {"O", "D", "L", "d", "l"}  # as in O'Brien


def detokenize(text, before=""):
    """Returns text of WikiText, Penn Treebank or One Billion Word without the blanks that its tokenization brought in.

    Signs within words and numbers (`@-@`, `@,@`, `@.@`), punctuation, brackets, quotes, contractions (`'s`, `n't`), currency and
    headings are joined to their neighbours, `<eos>` ends a line, and words are otherwise one blank apart; `<unk>` stays.

    A word's place depends on what stands before it alone, so text may come in parts, each of whole words: what a part adds
    is never changed by the next. If `before` ends within a word and text goes on with it, the rest of this word stays as it is.

    Args:
        text: str.
        before: what stands before it, not detokenized; the current line of it is enough.
    """
    line, before = _Line(), before[before.rfind("\n") + 1:]
    rest = re.match(r"\S*", text).group() if before and not before[-1].isspace() else ""  # of a word that before begins
    for word in _words(before + rest):
        line.add(word)
    return rest + "".join(map(line.add, _words(text[len(rest):])))


def _words(text):
    return re.findall(r"\n|\S+", text)


class _Line:
    """What of a line decides how its next word is written."""

    def __init__(self):
        self._last, self._joined = "", ""  # the last word, and what the next one must begin with to be joined to it
        self._quotes = set()  # the quotes that are open

    def add(self, word):
        """Returns a word as it is written after those before, with a blank or without."""
        if word in _LINE_ENDS:
            self.__init__()
            return "\n"
        joint = _JOINT.fullmatch(word)
        closes = word in self._quotes or (word == "'" and self._owns())
        joined = closes or joint or word in _CLOSING or _CONTRACTION.fullmatch(word) or re.match(self._joined, word) or (
            self._last in _NAME_BEGINS and re.match(r"'\w", word))
        self._follow(word, closes, joint)
        return ("" if joined else " ") + (joint[1] if joint else word)

    def _owns(self):
        """Whether a ' after the last word makes it the owner of what follows, as in players'."""
        return self._last.isalpha() and self._last.endswith("s") and self._last.lower() not in _NO_OWNERS

    def _follow(self, word, closes, joint):
        """Takes up a word as the last one."""
        if self._last == "'" and word[0].isdigit():  # years as in '90s
            self._quotes.discard("'")
        if closes:
            self._quotes.discard(word)
            self._joined = _NEVER
        elif word in ('"', "'"):
            self._quotes.add(word)
            self._joined = ""
        elif word == ":" and self._last[-1:].isdigit():  # times and scores
            self._joined = r"\d"
        else:
            self._joined = "" if joint else _OPENING.get("$" if word.endswith("$") else word, _NEVER)
        self._last = word
