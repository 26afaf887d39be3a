"""Raw text that is read in blocks, as often as needed, without holding all of it."""

import contextlib
import dataclasses
import gzip
import hashlib
import json
import re
import zlib
from pathlib import Path

import numpy as np

BLOCK_SIZE = 1 << 23

_BLANK, _LINE_BREAK, _UNDERSCORE = b" \n_"
_TFDS_VERSION = re.compile(r"[\d*]+\.[\d*]+\.[\d*]+|experimental_latest")
_TFDS_BATCH = 256


@dataclasses.dataclass(frozen=True)
class TextFile:
    """A file or a range of its bytes; a file whose name ends in .gz is decompressed.

    Args:
        path: local, or anything that `tf.io.gfile` opens, such as gs://bucket/train.txt.
        start: the first byte; 0 for a .gz file.
        stop: the byte after the last one, None for the end of the file; None for a .gz file.

    Attributes:
        name: the path, for messages.

    Raises:
        ValueError: a range of a .gz file; while reading: a .gz file that is cut off or damaged, a file that ends before
            `stop`.
        OSError: while reading: the file is missing or not readable.
    """

    path: str | Path
    start: int = 0
    stop: int | None = None

    def __post_init__(self):
        if self._compressed and (self.start or self.stop is not None):
            raise ValueError(f"Expected a range of a file that is not compressed. Received: path={self.path}")

    @property
    def name(self):
        return str(self.path)

    def blocks(self, size=BLOCK_SIZE):
        """Yields the text in order, `size` bytes at a time, the last block shorter and none empty."""
        return self._decompressed(size) if self._compressed else self._stored(size)

    def sha256(self):
        """Returns the hex sha256 of the bytes as they are stored, for a .gz file the compressed ones."""
        return _sha256(self._stored(BLOCK_SIZE))

    def stored_at(self):
        """Returns (path, start, size) where the text lies as it is in a local file, otherwise None."""
        if self._compressed or is_remote(self.path):
            return None
        stop = Path(self.path).stat().st_size if self.stop is None else self.stop
        return self.path, self.start, stop - self.start

    @property
    def _compressed(self):
        return self.name.endswith(".gz")

    def _stored(self, size):
        with _opened(self.path) as file:
            file.seek(self.start)
            position = self.start
            while block := file.read(size if self.stop is None else min(size, self.stop - position)):
                position += len(block)
                yield block
        if self.stop is not None and position < self.stop:
            raise ValueError(f"Expected at least {self.stop} bytes in {self.path}. Received: size={position}")

    def _decompressed(self, size):
        with _opened(self.path) as stored, gzip.GzipFile(fileobj=stored, mode="rb") as file:
            try:
                while block := file.read(size):
                    yield block
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise ValueError(f"Expected a whole gzip file ({error}). Received: path={self.path}") from error


@dataclasses.dataclass(frozen=True, eq=False)
class MemoryText:
    """Text that is in memory.

    Args:
        name: what messages call it.
        data: bytes or a contiguous uint8 array (bytes,); not copied.
    """

    name: str
    data: bytes | np.ndarray

    def blocks(self, size=BLOCK_SIZE):
        """Yields the text in order, `size` bytes at a time, the last block shorter and none empty."""
        view = memoryview(self.data)
        for start in range(0, len(view), size):
            yield view[start : start + size].tobytes()

    def sha256(self):
        """Returns the hex sha256 of the text."""
        return hashlib.sha256(self.data).hexdigest()


@dataclasses.dataclass(frozen=True)
class SymbolFile:
    """A train.txt, valid.txt or test.txt as the original code's scripts prepare enwik8 and text8.

    Kind "byte" (enwik8) holds decimal byte values between blanks; a line break is the byte 10 itself: `62 \\n 32` is
    b">\\n ". A line break that an editor has added at the end is therefore one byte more. Kind "character" (text8)
    holds single ASCII characters between blanks, "_" for a blank; line breaks count as blanks: `_ g o` is b" go".

    Args:
        path: the file, as for `TextFile`.
        kind: "byte" or "character".

    Attributes:
        name: the path, for messages.

    Raises:
        ValueError: no such kind; while reading: a file of another format, with its line.
        OSError: while reading: the file is missing or not readable.
    """

    path: str | Path
    kind: str

    def __post_init__(self):
        if self.kind not in _SYMBOLS:
            raise ValueError(f"Expected a kind of symbols among {', '.join(_SYMBOLS)}. Received: kind={self.kind!r}")

    @property
    def name(self):
        return str(self.path)

    def blocks(self, size=BLOCK_SIZE):
        """Yields the bytes in order, those that `size` bytes of the file stand for at a time, none empty."""
        expected, decode = _SYMBOLS[self.kind]
        lines, left = 0, b" "  # line breaks so far; a byte that was decoded, then the digits that were not
        for stored in _and_an_end(TextFile(self.path).blocks(size)):
            data = left + stored
            head = _before_open_symbol(data)
            decoded, wrong = decode(np.frombuffer(data, np.uint8, head))
            if wrong.any():
                position = int(wrong.argmax())
                line = lines + data.count(b"\n", 1, position) + 1
                symbol = _symbol_around(data, position)
                raise ValueError(f"Expected {expected} in line {line} of {self.path}. Received: symbol={symbol!r}")
            lines += data.count(b"\n", 1, head)
            left = data[head - 1 :]
            if decoded.size:
                yield decoded.tobytes()

    def sha256(self):
        """Returns the hex sha256 of the bytes that the symbols stand for."""
        return _sha256(self.blocks())


class TfdsText:
    """One split of a tensorflow-datasets data set: the text of every example, each followed by one line break.

    A data set that is not prepared yet is downloaded and prepared in `data_dir` when the text is constructed.

    Args:
        name: of the data set, such as "lm1b" or "wiki40b/en:text": the name as `tfds.builder` takes it, then,
            needed when several features are texts, a colon and the name of the feature.
        split: a split or an expression such as "train[:90%]".
        data_dir: the folder to look in first, before tensorflow-datasets' own; None for its own alone.

    Attributes:
        name: such as "wiki40b/en:text test", for messages.

    Raises:
        ValueError: no such data set, feature or split, or several features are texts.
        OSError: the data set cannot be downloaded or prepared.
    """

    def __init__(self, name, split, data_dir=None):
        self.split, self.name = split, f"{name} {split}"
        self._builder, self._feature = tfds_builder(name, data_dir)
        try:
            self.n_examples = self._builder.info.splits[split].num_examples
        except Exception as error:  # of many types, depending on what is wrong with the expression
            splits = ", ".join(self._builder.info.splits)
            raise ValueError(
                f"Expected an expression over the splits of {name}, which are {splits}. Received: split={split!r}"
            ) from error

    def blocks(self, size=BLOCK_SIZE):
        """Yields the text in order, at least `size` bytes at a time but for the last block, none empty."""
        import tensorflow as tf
        import tensorflow_datasets as tfds

        dataset = self._builder.as_dataset(
            split=self.split,
            shuffle_files=False,
            read_config=tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False),  # one file after the other
            decoders=tfds.decode.PartialDecoding({self._feature: True}),
        )
        dataset = dataset.map(lambda example: example[self._feature] + "\n").batch(_TFDS_BATCH)
        parts, held = [], 0
        for part in dataset.map(tf.strings.reduce_join).as_numpy_iterator():
            parts.append(part)
            held += len(part)
            if held >= size:
                yield b"".join(parts)
                parts, held = [], 0
        if held:
            yield b"".join(parts)

    def sha256(self):
        """Returns a hex sha256 over the data set's name, version and split sizes, without reading the text."""
        info = self._builder.info
        sizes = {name: [split.shard_lengths, split.num_bytes] for name, split in info.splits.items()}
        content = [info.full_name, self._feature, self.split, self.n_examples, sizes]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode("utf-8")).hexdigest()


def tfds_builder(name, data_dir=None):
    """Returns the builder of a tensorflow-datasets data set, prepared, and the name of its text feature.

    Args:
        name, data_dir: as for `TfdsText`.

    Raises:
        ValueError, OSError: as `TfdsText`.
    """
    import tensorflow_datasets as tfds

    dataset, colon, feature = name.rpartition(":")
    if not colon or _TFDS_VERSION.fullmatch(feature):
        dataset, feature = name, None
    folders = [None] if data_dir is None else [str(data_dir), None]
    try:
        builders = [tfds.builder(dataset, data_dir=folder) for folder in folders]
    except Exception as error:  # whatever a data set's code raises; the message lists every data set there is
        raise ValueError(f"Expected a data set that tensorflow-datasets knows. Received: name={name!r}") from error
    builder = next((builder for builder in builders if builder.is_prepared()), builders[0])
    feature = _text_feature(builder, name, feature)
    if not builder.is_prepared():
        try:
            builder.download_and_prepare()
        except Exception as error:  # of many types: no network, a checksum, a library that its code needs
            reason = f"{type(error).__name__}: {str(error).strip()}".splitlines()[0].partition(" (Caused by")[0][:200]
            raise OSError(
                f"Expected to be able to download and prepare the tensorflow-datasets data set {dataset} in "
                f"{builder.data_dir} ({reason}). Received: name={name!r}"
            ) from error
    return builder, feature


def is_remote(path):
    """Tells whether a path is one that `tf.io.gfile` opens rather than a local one."""
    return "://" in str(path)


@contextlib.contextmanager
def remote_errors(path):
    """Turns TensorFlow's errors about a path into a FileNotFoundError, a PermissionError or another OSError."""
    import tensorflow as tf

    try:
        yield
    except tf.errors.OpError as error:
        kinds = {tf.errors.NotFoundError: FileNotFoundError, tf.errors.PermissionDeniedError: PermissionError}
        reason = error.message.splitlines()[0] if error.message else type(error).__name__
        raise kinds.get(type(error), OSError)(
            f"Expected to be able to read {path} ({reason}). Received: path={path}"
        ) from error


@contextlib.contextmanager
def _opened(path):
    if is_remote(path):
        import tensorflow as tf

        with remote_errors(path), tf.io.gfile.GFile(str(path), "rb") as file:
            yield file
        return
    try:
        file = open(path, "rb", buffering=0)  # blocks are large; a buffer would only copy them
    except OSError as error:
        raise type(error)(f"Expected to be able to read {path} ({error.strerror}). Received: path={path}") from error
    with file:
        yield file


def _sha256(blocks):
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(block)
    return digest.hexdigest()


def _text_feature(builder, name, feature):
    import tensorflow_datasets as tfds

    texts = [key for key, kind in builder.info.features.items() if isinstance(kind, tfds.features.Text)]
    if feature is None and len(texts) == 1:
        return texts[0]
    if feature in texts:
        return feature
    known = ", ".join(sorted(texts)) or "none"
    raise ValueError(
        f"Expected the name of a data set with one feature of type Text, or a colon and the feature after the name; "
        f"there are these features of that type: {known}. Received: name={name!r}"
    )


def _and_an_end(blocks):
    """Yields the blocks and then a blank, which ends the last symbol."""
    yield from blocks
    yield b" "


def _before_open_symbol(data):
    """Returns where the digits start that the next block may continue: the end when there are none or more than 3."""
    tail = data[-4:]
    digits = len(tail) - len(tail.rstrip(b"0123456789"))
    return len(data) - digits if digits < 4 else len(data)


def _symbol_around(data, position):
    """Returns at most 20 characters of the symbol that has its first wrong byte at `position`."""
    start = max(data.rfind(b" ", 0, position), data.rfind(b"\n", 0, position)) + 1
    symbol = re.match(rb"[^ \n]*", data[max(start, position - 10) :][:20])[0]
    return symbol.decode("ascii", errors="replace")


def _decimal_bytes(text):
    """Returns the bytes (N,) that are spelled after text[0], and (len(text),) which bytes of text are wrong."""
    digit = text - np.uint8(ord("0"))
    is_digit, is_break = digit < 10, text == _LINE_BREAK
    digit = np.where(is_digit, digit, 0).astype(np.uint16)
    value = digit.copy()  # at every byte, of the up to 3 digits that end there
    value[1:] += 10 * digit[:-1]
    value[2:] += 100 * digit[:-2] * is_digit[1:-1]
    value[is_break] = 10
    is_last = is_break | is_digit
    is_last[:-1] &= is_break[:-1] | ~is_digit[1:]
    wrong = ~(is_digit | is_break | (text == _BLANK)) | (is_last & (value > 255))
    wrong[3:] |= is_digit[:-3] & is_digit[1:-2] & is_digit[2:-1] & is_digit[3:]
    is_last[0] = False
    return value[is_last].astype(np.uint8), wrong


def _characters(text):
    """Returns the bytes (N,) that are spelled after text[0], and (len(text),) which bytes of text are wrong."""
    is_symbol = (text != _BLANK) & (text != _LINE_BREAK)
    wrong = is_symbol & ((text <= _BLANK) | (text > ord("~")))
    wrong[1:] |= is_symbol[1:] & is_symbol[:-1]
    is_symbol[0] = False
    symbols = text[is_symbol]
    symbols[symbols == _UNDERSCORE] = _BLANK
    return symbols, wrong


_SYMBOLS = {  # what the messages say, and the function
    "byte": ("decimal byte values from 0 to 255 between blanks", _decimal_bytes),
    "character": ("single ASCII characters between blanks", _characters),
}
