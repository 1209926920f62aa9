# SPDX-License-Identifier: Apache-2.0
"""torch.tpu answers by torch.cuda's names."""

import pytest

import torch
import tputorch

# Names of torch.cuda without a meaning here.
ELSEWHERE = set(
    """AcceleratorError BFloat16Storage BFloat16Tensor BoolStorage BoolTensor ByteStorage ByteTensor CUDAGraph
    CUDAPluggableAllocator CharStorage CharTensor ComplexDoubleStorage ComplexFloatStorage CudaError DEVICE_REQUIREMENT
    DeferredCudaCallError DoubleStorage DoubleTensor ExternalStream FloatStorage FloatTensor GreenContext HalfStorage
    HalfTensor IntStorage IntTensor LongStorage LongTensor MemPool PYTORCH_RELEASES_CODE_CC ShortStorage ShortTensor amp
    caching_allocator_alloc caching_allocator_delete caching_allocator_disabled caching_allocator_enable cast
    change_current_allocator check_error clock_rate cudaStatus cudart current_blas_handle current_solver_handle
    device_memory_used gds get_allocator_backend get_arch_list get_gencode_flags get_stream_from_external
    get_sync_debug_mode graph graph_pool_handle graphs green_contexts has_magma host_memory_stats
    host_memory_stats_as_nested_dict jiterator list_gpu_processes make_graphed_callables max_memory_cached memory
    memory_cached memory_snapshot memory_stats_as_nested_dict memory_usage nccl nvtx power_draw profiler random
    reset_accumulated_host_memory_stats reset_peak_host_memory_stats set_sync_debug_mode sparse streams temperature
    tunable use_mem_pool utilization Any Callable NewType Optional TYPE_CHECKING classproperty importlib lru_cache os
    platform threading torch traceback warnings Device""".split()
)


def test_the_names_of_cuda_are_there():
    missing = [n for n in dir(torch.cuda) if not n.startswith("_") and n not in ELSEWHERE and not hasattr(torch.tpu, n)]
    assert not missing


def test_devices():
    assert torch.tpu.is_available() and torch.tpu.device_count() >= 1
    assert torch.tpu.current_device() == 0
    torch.tpu.set_device("tpu:0")
    with torch.tpu.device(0), torch.tpu.device_of(torch.ones(1)), torch.tpu.device_of(torch.ones(1, device="tpu")):
        assert torch.ones(1, device="tpu").device == torch.device("tpu", 0)
    assert torch.tpu.is_initialized()
    p = torch.tpu.get_device_properties("tpu")
    assert p.name == torch.tpu.get_device_name() and p.total_memory > 2**28
    assert torch.tpu.is_bf16_supported() and torch.bfloat16 in torch.tpu.get_amp_supported_dtype()
    with pytest.raises(ValueError, match="expected a tpu device"):
        torch.tpu.set_device("cpu")


def test_the_cpu_plugin_says_what_it_is_and_shows_one_device(python):
    """[G2]"""
    code = "import torch, tputorch; print(torch.tpu.device_count(), torch.tpu.get_device_name())"
    out = python(code, TPUTORCH_CPU_DEVICES="").ok()
    if "CPU" not in out:
        pytest.skip("this is a TPU")
    assert out.split() == ["1", "XLA:CPU"]
    assert python(code, TPUTORCH_CPU_DEVICES="3").ok().split() == ["3", "XLA:CPU"]


def test_several_devices(python):
    out = python("""
import torch, tputorch
a = torch.arange(3.0, device='tpu:1'); b = a.to('tpu:0')
with torch.tpu.device(1): c = torch.ones(3, device='tpu')
print(b.device, c.device, (a + c).tolist(), (b * 2).tolist(), torch.tpu.current_device())
try: a + b
except RuntimeError as e: print('refused', e)
""", TPUTORCH_CPU_DEVICES="2").ok()
    assert out.startswith("tpu:0 tpu:1 [1.0, 2.0, 3.0] [0.0, 2.0, 4.0] 0\nrefused") and "same device" in out


def test_streams_and_events():
    s = torch.tpu.Stream()
    before = torch.tpu.current_stream()
    with torch.tpu.stream(s):
        assert torch.tpu.current_stream() == s
        x = torch.ones(4, device="tpu") + 1
    assert torch.tpu.current_stream() == before
    torch.tpu.current_stream().wait_stream(s)
    x.record_stream(torch.tpu.current_stream())
    a, b = torch.tpu.Event(enable_timing=True), torch.tpu.Event(enable_timing=True)
    a.record()
    y = x @ x
    b.record()
    b.synchronize()
    assert a.elapsed_time(b) >= 0 and b.query() and y.item() == 16
    assert torch.tpu.default_stream().device.type == "tpu" and not torch.tpu.is_current_stream_capturing()


def test_memory_numbers():
    torch.tpu.synchronize()
    torch.tpu.reset_peak_memory_stats()
    base = torch.tpu.memory_allocated()
    x = torch.zeros(2**20, device="tpu") + 1
    torch.tpu.synchronize()
    assert torch.tpu.memory_allocated() - base >= 4 * 2**20
    text = torch.tpu.memory_summary()
    assert "4.0" in text or "4194304" in text
    s = torch.tpu.memory_stats()
    assert s["allocated_bytes.all.current"] == torch.tpu.memory_allocated() == torch.tpu.memory_reserved()
    del x
    torch.tpu.synchronize()
    assert torch.tpu.memory_allocated() - base < 2**20 and torch.tpu.max_memory_allocated() - base >= 4 * 2**20
    free, total = torch.tpu.mem_get_info()
    assert 0 < free <= total
    torch.tpu.empty_cache()


def test_a_fraction_of_the_memory_is_a_limit(python):
    out = python("""
import torch, tputorch
torch.tpu.set_memory_limit(64 << 20)
keep = torch.ones(8 << 20, device='tpu')
try: torch.ones(16 << 20, device='tpu').sum().item(); print('no')
except torch.OutOfMemoryError as e: print('refused:', e)
print(keep.sum().item() == 8 << 20)
torch.tpu.set_memory_limit(0); torch.tpu.set_per_process_memory_fraction(0.5)
print(torch.tpu.get_per_process_memory_fraction())
""").ok()
    assert "refused:" in out and out.split()[-2:] == ["True", "0.5"]


def test_modes():
    assert torch.tpu.eager_mode == "fused"
    try:
        for mode in ("strict", "debug", torch.tpu.EagerMode.STRICT):
            torch.tpu.eager_mode = mode
            assert torch.tpu.eager_mode in ("strict", "debug")
            assert (torch.arange(3, device="tpu") + 1).tolist() == [1, 2, 3]
        with pytest.raises(ValueError, match="eager_mode is"):
            torch.tpu.eager_mode = "fast"
    finally:
        torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_AND_FUSE)
    assert torch.tpu.eager_mode == "fused"


def test_random_state_by_name():
    """[R2] [R3]"""
    torch.tpu.manual_seed(3)
    assert torch.tpu.initial_seed() == 3
    state, cpu = torch.tpu.get_rng_state(), torch.get_rng_state()
    assert state.numel() == 16 and state.dtype == torch.uint8 and state.device.type == "cpu"
    a = torch.rand(4, device="tpu")
    torch.tpu.set_rng_state(state)
    assert torch.equal(a, torch.rand(4, device="tpu")) and torch.equal(torch.get_rng_state(), cpu)
    torch.tpu.set_rng_state_all(torch.tpu.get_rng_state_all())
    with torch.random.fork_rng(device_type="tpu"):
        torch.rand(3, device="tpu")
    b = torch.rand(4, device="tpu")
    torch.tpu.set_rng_state(state)
    torch.rand(4, device="tpu")
    assert torch.equal(b, torch.rand(4, device="tpu"))
    g = torch.tpu.default_generators[0]
    assert g.device.type == "tpu" and len(torch.tpu.default_generators) == torch.tpu.device_count()
    torch.tpu.seed_all()
    assert torch.tpu.initial_seed() != 3


def test_statistics():
    before = torch.tpu.compile_stats()["calls"]
    assert (torch.ones(2, device="tpu") + 1).tolist() == [2, 2]
    s = torch.tpu.compile_stats()
    assert s["calls"] > before and s["compiles"] == torch.tpu.compile_count() == tputorch.compile_count()


def test_profiler_counts():
    from tputorch import profiler

    x = torch.ones(3, device="tpu")
    with profiler.counts() as c, profiler.range("work"):
        (x * 2 + 1).sum().item()
    assert c["launches"] >= 1 and c["calls"] >= 2
