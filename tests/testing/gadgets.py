"""Pickles that no reader may run: they would make a file called marker in the working folder, or call something else."""

MARKER, COMMAND = b"X\x06\x00\x00\x00marker", b"X\x0c\x00\x00\x00touch marker"
GADGETS = {  # name: (a pickle, what the refusal must say)
    "os.system": (b"cos\nsystem\n" + COMMAND + b"\x85R.", "name=os.system"),
    "posix.system, protocol 0": (b"cposix\nsystem\n(Vtouch marker\ntR.", "name=posix.system"),
    "eval": (b"cbuiltins\neval\n" + COMMAND + b"\x85R.", "name=builtins.eval"),
    "exec": (b"cbuiltins\nexec\n" + COMMAND + b"\x85R.", "name=builtins.exec"),
    "Popen": (b"csubprocess\nPopen\n" + COMMAND + b"\x85R.", "name=subprocess.Popen"),
    "functools.partial": (b"cfunctools\npartial\ncos\nsystem\n" + COMMAND + b"\x86R.", "name=functools.partial"),
    "attrgetter": (b"coperator\nattrgetter\n" + COMMAND + b"\x85R.", "name=operator.attrgetter"),
    "torch.load": (b"ctorch\nload\n" + COMMAND + b"\x85R.", "name=torch.load"),
    "INST": (b"(" + COMMAND + b"ios\nsystem\n.", "name=os.system"),
    "OBJ": (b"(cos\nsystem\n" + COMMAND + b"o.", "name=os.system"),
    "NEWOBJ": (b"\x80\x02csubprocess\nPopen\n" + COMMAND + b"\x85\x81.", "name=subprocess.Popen"),
    "STACK_GLOBAL": (b"\x80\x04\x8c\x02os\x8c\x06system\x93" + COMMAND + b"\x85R.", "name=os.system"),
    "EXT1": (b"\x80\x02\x82\x01.", "opcode EXT1"),
    "EXT2": (b"\x80\x02\x83\x01\x00.", "opcode EXT2"),
    "EXT4": (b"\x80\x02\x84\x01\x00\x00\x00.", "opcode EXT4"),
    "persistent id": (b"Pstorage\n.", "opcode PERSID"),
    "buffer": (b"\x80\x05\x97.", "opcode NEXT_BUFFER"),
    "call of a text": (COMMAND + b")R.", "TypeError"),
}  # fmt: skip
