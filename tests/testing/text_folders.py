"""Folders of files with text, and what the datasets' sources read of them."""

from data_utils.dataset_texts import SPLITS


def write_files(folder, files):
    """Writes {name: bytes} below a folder, whose folders are made, and returns the folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def texts(found):
    """Returns split -> its text, and checks that there are the three splits in order."""
    assert tuple(found) == SPLITS
    return {split: b"".join(b"".join(source.blocks()) for source in sources) for split, sources in found.items()}
