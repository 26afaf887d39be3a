"""The text of a split -> the stream of its token ids."""


def encode_split(text, vocabulary):
    """Returns the token ids (N,) of one split, in text order.

    Args:
        text: uint8 array (bytes,), the raw text of the split.
        vocabulary: what turns it into ids.
    """
    return vocabulary.encode(text)
