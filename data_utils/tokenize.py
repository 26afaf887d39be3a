"""Text as people write it becomes text as WikiText is written: the opposite of data_utils.detokenize, for prompts."""

import re

_ASCII = str.maketrans({**dict.fromkeys("„“”«»", '"'), **dict.fromkeys("`´‘’‚", "'"), "–": "-", "—": " - ", "…": "..."})
_LETTER, _OTHER = r"[^\W\d_]", r"[\W\d_]"
_RULES = [(re.compile(pattern), replacement) for pattern, replacement in (
    (r"''", '"'),
    (r'"([,.]+)', r'\1"'),
    (r"(?P<kept><eos>|<unk>|<formula>|(?<!\S)@[-,.]@(?!\S))|(?P<sign>[^\w\s.',-]|_)", lambda found: found["kept"] or f" {found['sign']} "),
    (r"(?<=[^\W_])-(?=[^\W_])", " @-@ "),
    (r"\.{2,}", r" \g<0> "),
    (r"(?<![\d@]),|,(?![\d@])", " , "),
    (rf"(?<={_LETTER})'(?={_LETTER})|(?<=\d)'(?=s)", " '"),
    (rf"(?!(?<=\s)'(?:[stdm]|re|ve|ll)(?!\S))(?:(?<={_OTHER})'(?={_OTHER})|(?<=[\W_])'(?={_LETTER})|(?<={_LETTER})'(?={_OTHER}))", " ' "),
)]
_NUMBER = re.compile(r"(?<=\d)[,.](?=\d)"), r" @\g<0>@ "
_ABBREVIATIONS = set("Mr Mrs Ms Messrs Mme Mlle Dr Drs Prof Gen Brig Col Maj Capt Cmdr Adm Lt Sgt Cpl Pvt Gov Sen Sens Rep Reps Rev Hon Msgr "
                     "Supt Insp Asst Sr St Bros Corp Bldg Op Ph v vs".split())
_NUMBERED = set("No Nos Art pp".split())  # abbreviations before a number


def tokenize(text):
    """Returns text with its words, signs and numbers apart, as in WikiText and as Hugging Face's tokenizer of Transformer-XL has them.

    The rules are Moses' for English: contractions (`'s`) and signs become words, hyphens and the signs within numbers are written `@-@`,
    `@,@` and `@.@`, a full stop belongs to its word after an abbreviation or before a small letter, and quotes become ASCII's. Lines
    remain, and so do `<unk>`, `<eos>` and text that is written so already, where Moses would split `@-@` and `'s` once more.

    Args:
        text: str.

    Example:
        tokenize("The captain's half-empty jar (23,000 lemons).")  # "The captain 's half @-@ empty jar ( 23 @,@ 000 lemons ) ."
    """
    return "\n".join(_tokenized(line) for line in text.split("\n"))


def _tokenized(line):
    line = line.translate(_ASCII).strip()
    for pattern, replacement in _RULES:
        line = pattern.sub(replacement, line)
    words = line.split()
    words = [_without_stop(word, following) for word, following in zip(words, [*words[1:], ""])]
    pattern, replacement = _NUMBER
    return " ".join(pattern.sub(replacement, re.sub(r"\.'$", " . '", word)) for word in words)


def _without_stop(word, following):
    """Returns a word with its full stop apart, unless that belongs to it."""
    stem = word[:-1]
    if not word.endswith(".") or not stem or stem.endswith("."):
        return word
    abbreviated = stem in _ABBREVIATIONS or re.fullmatch("[A-Z]", stem) or ("." in stem and re.search(_LETTER, stem))
    belongs = abbreviated or following[:1].islower() or (stem in _NUMBERED and following[:1].isdigit())
    return word if belongs else f"{stem} ."
