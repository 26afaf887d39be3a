"""The TPU compiler of libtpu, on a machine without a TPU: how much HBM a program takes on one core."""

import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import threading

MEGACORE = ("v4",)  # two cores that work as one device, which this compiler must be told
TOO_MUCH = 2 ** 40  # bytes that no core has


def compile_program(text, donated, topology, machine_code=False, least=0):
    """Returns what the compiler says of a program on one core of a topology.

    It runs in a process of its own, which ends as soon as the compiler has placed every buffer: the machine code, which
    takes most of the time, says nothing more of memory but its own size.

    Args:
        text: StableHLO, as in TpuProgram.
        donated: (argument, result) numbers that share their memory, beside those that the text names.
        topology: a name such as "v3:2x2".
        machine_code: whether to compile to the end.
        least: bytes that the program needs in any case; if they are not available, nothing is compiled.

    Returns:
        {"needed": bytes of HBM, "at_least": whether needed is only `least`, "available": bytes, "code": bytes of the machine
        code or None}. Needed are the arguments, temporaries, and those results that take no argument's place; fits or not,
        it is counted.

    Raises:
        ValueError: if the topology or the program is refused.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "program.mlir")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        start = "import runpy, sys; runpy.run_path(sys.argv[1])['compile_here'](*sys.argv[2:])"  # without importing TensorFlow
        settings = json.dumps({"donated": donated, "topology": topology, "machine_code": machine_code, "folder": folder,
                               "least": least})
        run = subprocess.run([sys.executable, "-c", start, os.path.abspath(__file__), path, settings], text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **_ENVIRONMENT})
    lines = run.stdout.splitlines()
    if run.returncode or not lines:
        raise ValueError(f"The compiler must come to its end. Received: exit code {run.returncode}, "
                         f"{(run.stderr.splitlines() or ['no message'])[-1]}")
    answer = json.loads(lines[-1])
    if "error" in answer:
        raise ValueError(f"{answer['error']} Received: topology={topology}")
    return answer


_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",  # do not ask a cloud's metadata server which TPU this is
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # no TPU is opened, so that others may run beside
    "JAX_PLATFORMS": "cpu",
}


def compile_here(path, settings):
    """Compiles the program of a file in this process, prints the answer as JSON and ends the process."""
    settings = json.loads(settings)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(_answer(path, settings)), daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.5)
        placed = None if settings["machine_code"] else _needed(settings["folder"])
        if placed is not None and not answers and settings.get("available"):
            answers.append(_said(settings, placed))
            break
    print(json.dumps(answers[0]), flush=True)
    os._exit(0)  # the compiler may still be at work


def _answer(path, settings):
    from jax.errors import JaxRuntimeError
    from jaxlib.mlir.ir import MLIRError

    try:
        device = _device(settings["topology"])
        settings["available"] = _available(device)
    except JaxRuntimeError as error:
        return {"error": f"The topology must be one that the compiler knows ({_reason(error)})."}
    if settings["least"] > settings["available"]:
        return _said(settings, settings["least"], at_least=True)
    options = {"xla_dump_to": settings["folder"], "xla_dump_hlo_as_text": True}
    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        memory = _compiled(device, text, settings["donated"], options).get_compiled_memory_stats()
    except (JaxRuntimeError, MLIRError) as error:
        needed = _needed(settings["folder"])
        if "CompileTimeHbmOom" not in str(error) or needed is None:
            return {"error": f"The compiler refuses the program ({_reason(error)})."}
        return _said(settings, needed)
    needed = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes + memory.temp_size_in_bytes
    return _said(settings, needed, code=memory.generated_code_size_in_bytes)


def _said(settings, needed, at_least=False, code=None):
    return {"needed": needed, "at_least": at_least, "available": settings["available"], "code": code}


def _device(topology):
    from jax.experimental import topologies

    megacore = {"chip_config_name": "megacore"} if topology.split(":")[0] in MEGACORE else {}
    return topologies.get_topology_desc(platform="tpu", topology_name=topology, **megacore).devices[0]


def _available(device):
    """Returns the bytes of HBM that a program may have, which the compiler says when it refuses one that wants too much."""
    from jax.errors import JaxRuntimeError

    shape = f"tensor<{TOO_MUCH}xi8>"
    try:
        _compiled(device, f"func.func @main(%0: {shape}) -> {shape} {{ return %0 : {shape} }}", [], {})
    except JaxRuntimeError as error:
        found = re.search(r"available HBM \(([\d.]+)G\)", str(error))
        if found is None:
            raise
        return int(float(found[1]) * 2 ** 30)
    raise AssertionError("a core can't have a TiB")


def _compiled(device, text, donated, options):
    """Returns the executable of StableHLO text for one device."""
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jaxlib.mlir import ir

    with mlir.make_ir_context():
        module = ir.Module.parse(text)
        _adapt(module.operation)
        _donate(module.operation, donated)
        settings = compiler.get_compile_options(num_replicas=1, num_partitions=1, env_options_overrides=options)
        return device.client.compile(module, xla_client.DeviceList((device,)), settings)


def _adapt(operation):
    """Makes of a program for a CPU one for a TPU: mhlo.copy, which is refused, goes, and random bits come as they do there."""
    for inner in [inner for region in operation.regions for block in region.blocks for inner in block.operations]:
        _adapt(inner.operation)
        if inner.operation.name == "mhlo.copy":
            inner.operation.results[0].replace_all_uses_with(inner.operation.operands[0])
            inner.operation.erase()
        elif inner.operation.name == "stablehlo.rng_bit_generator":
            _use_own_generator(inner.operation)


def _use_own_generator(operation):
    """Replaces Philox, which TensorFlow asks for on CPUs and GPUs only, by the TPU's generator, whose state has two numbers."""
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    with ir.InsertionPoint(operation), operation.location:
        state = operation.operands[0]
        short = ir.RankedTensorType.get([2], state.type.element_type)
        algorithm = stablehlo.RngAlgorithmAttr.get("DEFAULT")
        bits = stablehlo.RngBitGeneratorOp(short, operation.results[1].type, algorithm, stablehlo.slice(state, [0], [2], [1]))
        after = stablehlo.concatenate([bits.results[0], stablehlo.slice(state, [2], [3], [1])], 0)
    operation.results[0].replace_all_uses_with(after)
    operation.results[1].replace_all_uses_with(bits.results[1])
    operation.erase()


def _donate(operation, donated):
    """Adds (argument, result) numbers to those that share their memory."""
    from jaxlib.mlir import ir

    known = "mhlo.input_output_alias"
    named = list(operation.attributes[known]) if known in operation.attributes else []
    added = [ir.Attribute.parse(f'{{alias = {{kind = "may_alias", parameter_index = array<i64>, parameter_number = {argument} : i64}}, '
                                f"output_index = array<i64: {result}>}}") for argument, result in donated]
    operation.attributes[known] = ir.ArrayAttr.get([*named, *added])


def _needed(folder):
    """Returns the bytes of HBM in the compiler's report of where each buffer lies; None before it is written."""
    if not glob.glob(os.path.join(folder, "*.after_optimizations.txt")):  # written after the report
        return None
    for path in glob.glob(os.path.join(folder, "*.after_optimizations-memory-usage-report.txt")):
        with open(path, encoding="utf-8") as file:
            found = re.search(r"\(color=0\)\s+Total bytes: (\d+)", file.read())
        if found:
            return int(found[1])
    return None


def _reason(error):  # the first line may only say that something is wrong
    return " ".join(str(error).splitlines()[:2]).rstrip(".")
