"""Texts of any size -> streams of token ids on disk, in one pass over the text."""

import collections
import concurrent.futures
import dataclasses
import itertools

import numpy as np

from data_utils.token_stream import TokenStream

_BLOCK = 1 << 23  # bytes of text that a thread takes apart at a time


def encode_splits(splits, vocabulary, folder, counted=(), num_procs=2, lines_of=(), **limits):
    """Turns the texts of all splits into token ids.

    Text is read once: a thread takes a block apart into raw ids (bytes, code points, numbers of words in the order of
    their first place), which go to a file. A vocabulary that is made from the text is made from the counts afterwards,
    and the streams turn raw ids into token ids as they are read. The result does not depend on the number of threads.

    Args:
        splits: split -> list of `data_utils.text_sources` sources.
        vocabulary: the vocabulary, or what it grows from.
        folder: pathlib.Path for the files of raw ids, which are the caller's to remove.
        counted: the splits whose symbols the vocabulary takes up; none: it stays as it is.
        num_procs: threads.
        lines_of: splits whose every source is a stream by itself that knows its lines, so that they can be shuffled. The
            sources of any other split make one stream.
        limits: max_size and min_freq of a vocabulary that grows.

    Returns:
        The vocabulary; split -> list of `TokenStream`; split -> number of tokens that became the unknown
        symbol because the vocabulary lacks them.

    Raises:
        ValueError: text that is not UTF-8 where it must be, or a symbol that is not in a vocabulary without an unknown
            one; the sentence names file and line.
        OSError: a file can't be read or written.
    """
    splitter = vocabulary.splitter()
    streams, counts = {}, {}
    for split, sources in splits.items():
        counts[split] = np.zeros(0, np.int64)
        streams[split] = []
        with_lines = split in lines_of
        for index, group in enumerate([[source] for source in sources] if with_lines else [sources]):
            stream, found = _encode(group, splitter, folder / f"{split}-{index}.raw", num_procs, with_lines)
            streams[split].append(stream)
            counts[split] = _added(counts[split], found)
    if counted:
        total = np.zeros(0, np.int64)
        for split in counted:
            total = _added(total, counts[split])
        vocabulary = vocabulary.grown(splitter, total, **limits)
    raw_to_id = vocabulary.raw_to_id(splitter)
    unknown = {split: _count_unknown(counts[split], raw_to_id) for split in splits}
    for split, sources in splits.items():
        if unknown[split] and vocabulary.unknown_id is None:
            raise ValueError(_where_unknown(sources, vocabulary))
    if raw_to_id is not None:
        raw_to_id = np.where(raw_to_id < 0, vocabulary.unknown_id or 0, raw_to_id).astype(np.int32)
    for split in splits:
        streams[split] = [dataclasses.replace(stream, raw_to_id=raw_to_id) for stream in streams[split]]
    return vocabulary, streams, unknown


def _encode(sources, splitter, path, num_procs, with_lines):
    """Returns the stream of sources, one after the other, of raw ids yet, and how often each raw id occurs.

    Where the raw ids are the bytes of a file, the stream reads that file.
    """
    stored = getattr(sources[0], "stored_at", lambda: None)() if splitter.is_text and len(sources) == 1 else None
    if stored and not with_lines:
        path, start, size = stored
        return TokenStream(str(path), splitter.dtype, size, start=start), np.zeros(0, np.int64)
    size, counts, line_stops = 0, np.zeros(0, np.int64), [np.zeros(1, np.int64)]
    with open(path, "wb") as file:
        for found in itertools.chain.from_iterable(_found(source, splitter, num_procs) for source in sources):
            raw, counted, stops = splitter.collect(found)
            if with_lines:
                line_stops.append(_line_stops(raw, stops, splitter) + size)
            file.write(raw)
            size += len(raw)
            counts = _added(counts, counted)
    line_lengths = np.diff(np.concatenate([*line_stops, [size]])) if with_lines else None
    line_lengths = line_lengths[line_lengths > 0] if with_lines else None
    return TokenStream(str(path), splitter.dtype, size, line_lengths=line_lengths), counts


def _found(source, splitter, num_procs):
    """Yields what the splitter finds in every block, in order; threads work ahead on as many blocks as there are."""
    pending = collections.deque()
    with concurrent.futures.ThreadPoolExecutor(num_procs) as pool:
        try:
            for start, block, last in _blocks(source, splitter):
                pending.append((start, block, pool.submit(splitter.split, block, start == 0, last)))
                if len(pending) > num_procs:
                    yield _result(source, *pending.popleft())
            while pending:
                yield _result(source, *pending.popleft())
        finally:
            for *_, future in pending:
                future.cancel()


def _blocks(source, splitter):
    """Yields (place in the text, block, whether it is the last), cut where the splitter can work on each alone."""
    start, rest, waiting = 0, b"", []
    for chunk in source.blocks(_BLOCK):
        waiting.append(chunk)
        if sum(map(len, waiting)) < len(rest):
            continue  # within a very long word: joined seldom, so that time stays linear
        block, waiting = b"".join([rest, *waiting]), []
        cut = splitter.border(block)
        if cut:
            yield start, block[:cut], False
        start, rest = start + cut, block[cut:]
    block = b"".join([rest, *waiting])
    if block:
        yield start, block, True


def _result(source, start, block, future):
    try:
        return future.result()
    except UnicodeDecodeError as error:
        place = start + error.start
        line = 1 + _count_line_ends(source, place)
        raise ValueError(f"Expected UTF-8 in {source.name}, unlike line {line}, byte {place} of the file. "
                         f"Received: {block[error.start]:#04x}") from error


def _count_line_ends(source, stop):
    count, start = 0, 0
    for block in source.blocks(_BLOCK):
        count += block[:max(stop - start, 0)].count(b"\n")
        start += len(block)
        if start >= stop:
            break
    return count


def _where_unknown(sources, vocabulary):
    """Returns the sentence about the first symbol of a split that the vocabulary lacks."""
    for source in sources:
        splitter, line = vocabulary.splitter(), 1
        for found in _found(source, splitter, num_procs=1):
            raw, _, stops = splitter.collect(found)
            stops = _line_stops(raw, stops, splitter)
            is_unknown = vocabulary.raw_to_id(splitter)[raw] < 0
            if is_unknown.any():
                place = int(is_unknown.argmax())
                line += int(np.searchsorted(stops, place, side="right"))
                return (f"Expected symbols of the vocabulary alone in {source.name}, unlike line {line}. "
                        f"Received: {splitter.symbol(raw[place])!r}")
            line += len(stops)
    raise AssertionError("no symbol is unknown")


def _line_stops(raw, stops, splitter):
    """Returns where in raw ids lines stop."""
    return np.flatnonzero(raw == splitter.line_end) + 1 if stops is None else stops


def _count_unknown(counts, raw_to_id):
    return 0 if raw_to_id is None else int(counts[raw_to_id[:len(counts)] < 0].sum())


def _added(total, counts):
    """Returns the sum of two arrays of counts, the shorter of which ends with zeros."""
    if counts is None:
        return total
    longer, shorter = (total, counts) if len(total) >= len(counts) else (counts, total)
    longer = longer.copy()
    longer[:len(shorter)] += shorter
    return longer
