"""A text without some of its bytes, however it comes in blocks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from testing.odd_texts import OddBlocks

from data_utils.edited_text import EditedText
from data_utils.text_sources import MemoryText

SIZES = st.lists(st.integers(1, 6), min_size=1)


def edited(data, sizes=(3,), **edits):
    return list(EditedText(OddBlocks("text", data, sizes), **edits).blocks(1 << 10))


@given(st.text("ab \n").map(str.encode), SIZES)
def test_bytes_are_dropped_everywhere(data, sizes):
    blocks = edited(data, sizes, dropped=b"\n")
    assert b"".join(blocks) == data.replace(b"\n", b"")
    assert all(blocks)


@given(st.text("ab \n").map(str.encode), SIZES)
def test_bytes_are_stripped_at_both_ends(data, sizes):
    blocks = edited(data, sizes, stripped=b" ")
    assert b"".join(blocks) == data.strip(b" ")
    assert all(blocks)


@given(st.text("ab \n").map(str.encode), SIZES)
def test_what_is_dropped_does_not_keep_from_stripping(data, sizes):
    assert b"".join(edited(data, sizes, dropped=b"\n", stripped=b" ")) == data.replace(b"\n", b"").strip(b" ")


@pytest.mark.parametrize("edits", [{}, {"dropped": b"\n"}, {"stripped": b" "}])
def test_name_and_digest(edits):
    texts = [EditedText(MemoryText("m", data), **edits) for data in (b"a", b"b")]
    assert texts[0].name == "m"
    assert texts[0].sha256() == EditedText(MemoryText("other", b"a"), **edits).sha256()
    assert texts[0].sha256() != texts[1].sha256()


def test_digests_tell_edits_apart():
    edits = [{}, {"dropped": b"\n"}, {"stripped": b"\n"}, {"dropped": b" "}]
    assert len({EditedText(MemoryText("m", b"a"), **edit).sha256() for edit in edits}) == 4
