"""The text of tokens that come one after another."""

import re

_CONTEXT = 8  # tokens of the prompt that tell how the first new one is joined to them
_UNSURE = 3  # U+FFFD at the end that may stand for the first bytes of a character


class TextStream:
    """Turns the tokens of one row into text as they come, none of which is ever taken back.

    What may still change waits for the next tokens: a character of which bytes are missing, a word that is not complete where
    text is detokenized, and what may be the beginning of a stop text.

    Args:
        decode: function from token ids (N,) to str, a vocabulary's.
        prompt_ids: ids of the prompt, whose text is not shown again.
        prompt: its text.
        stop: texts at which the row ends; neither they nor what follows is shown. Of several the one that is complete first ends it.
        detokenize: function (text, text before it) -> str that is applied to complete words; None: text is shown as decoded.
        whole_words: whether every token is a word, so that none has to wait for its end.

    Attributes:
        text: what `feed` and `finish` have returned.
        ended: whether a stop text has come, or the row is finished.

    Example:
        stream = TextStream(vocabulary.decode, prompt_ids, prompt, stop=["\\n"])
        for token in tokens:
            print(stream.feed(token), end="")
        print(stream.finish())
    """

    def __init__(self, decode, prompt_ids, prompt="", stop=(), detokenize=None, whole_words=False):
        self._decode, self._stop, self._detokenize, self._whole_words = decode, tuple(stop), detokenize, whole_words
        self._ids = [int(token) for token in prompt_ids[-_CONTEXT:]]
        self._decoded = len(decode(self._ids))  # characters of these ids that are settled
        self._line, self._words, self._held = _last_line(prompt), "", ""  # before the words that are not complete; these; perhaps a stop
        self.text, self.ended = "", False

    def feed(self, token):
        """Returns the text that is settled by another token."""
        self._ids.append(int(token))
        return self._settle(self._new_characters(), last=False)

    def finish(self):
        """Returns the text that was still waiting; the row ends."""
        text = self._settle(self._decode(self._ids)[self._decoded:], last=True)
        self._ids, self._decoded, self.ended = [], 0, True
        return text

    def _new_characters(self):
        text = self._decode(self._ids)
        unsure = min(len(text) - len(text.rstrip("\ufffd")), _UNSURE)
        settled = len(text) - unsure
        new, self._decoded = text[self._decoded:settled], max(settled, self._decoded)
        if text and not unsure:
            self._ids = self._ids[-1:]
            self._decoded = len(self._decode(self._ids))
        return new

    def _settle(self, text, last):
        if self.ended:
            return ""
        self._held += text if self._detokenize is None else self._detokenized(text, last)
        ends = [(place + len(stop), place) for stop in self._stop if (place := self._held.find(stop)) >= 0]
        if ends:
            self.ended, shown = True, min(ends)[1]
        else:
            shown = len(self._held) if last else len(self._held) - self._begun()
        text, self._held = self._held[:shown], self._held[shown:]
        self.text += text
        return text

    def _begun(self):
        """Returns how many characters at the end may begin a stop text."""
        lengths = (length for stop in self._stop for length in range(1, len(stop)) if self._held.endswith(stop[:length]))
        return max(lengths, default=0)

    def _detokenized(self, text, last):
        self._words += text
        complete = len(self._words) if last or self._whole_words else re.match(r".*\s|", self._words, re.DOTALL).end()
        words, self._words = self._words[:complete], self._words[complete:]
        text = self._detokenize(words, self._line)
        self._line = _last_line(self._line + words)
        return text


def _last_line(text):
    return text[text.rfind("\n") + 1:]
