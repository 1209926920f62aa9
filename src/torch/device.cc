// device.cc - the virtual classes that PyTorch asks of a device: allocators, guard, generator, hooks.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/EmptyTensor.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <cstdlib>
#include <ctime>
#include <map>
#include <mutex>

#include "glue.h"
#include "torch_abi.h"

using namespace c10;

namespace glue {

// ---- device memory: an address that nobody may touch, and the storage behind it ----
static void drop(void* st) { storage_free(static_cast<storage*>(st)); }

DataPtr data_ptr_of(storage* take_st) {
  return DataPtr(reinterpret_cast<void*>(storage_addr(take_st)), take_st, drop, Device(TPU, static_cast<DeviceIndex>(storage_device(take_st))));
}

storage* storage_of(StorageImpl* s, int64_t* delta) {
  DataPtr& d = s->_mutable_data_ptr_no_checks();
  *delta = 0;
  if (C10_LIKELY(d.get_deleter() == drop)) return static_cast<storage*>(d.get_context());
  if (!d.get()) return nullptr;
  // Legacy pickle and DLPack rebuild a storage from its address alone.
  storage* st = storage_find(reinterpret_cast<uint64_t>(d.get()), delta);
  TORCH_CHECK(st, "tpu: the address of a storage that is gone");
  return st;
}

static void need_device(int d) {
  check(engine_start());
  TORCH_CHECK(d < engine_device_count(), "tpu: invalid device ordinal ", d, ": there are ", engine_device_count(), " devices");
}

namespace {

struct Allocator final : DeviceAllocator {
  DataPtr allocate(size_t n) override {
    storage* st = nullptr;
    need_device(engine_device());
    check(storage_new(n, engine_device(), &st));
    return data_ptr_of(st);
  }
  DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, size_t) const override { TORCH_CHECK(false, "tpu: device memory has no address to copy from"); }
  bool initialized() override { return true; }
  void emptyCache(MempoolId_t) override {}
  void recordStream(const DataPtr&, Stream) override {}
  CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex i) override {
    engine_memory m;
    engine_memory_stats(i, &m);
    CachingDeviceAllocator::DeviceStats s{};
    for (auto* stat : {&s.allocated_bytes, &s.reserved_bytes, &s.active_bytes, &s.requested_bytes}) {
      (*stat)[0].current = m.allocated;
      (*stat)[0].peak = m.peak;
    }
    s.allocation[0].current = m.live;
    s.allocation[0].allocated = m.allocs;
    s.allocation[0].freed = m.frees;
    return s;
  }
  void resetAccumulatedStats(DeviceIndex) override {}
  void resetPeakStats(DeviceIndex i) override { engine_memory_reset_peak(i); }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex i) override {
    engine_memory m;
    check(engine_start());
    engine_memory_stats(i, &m);
    return {static_cast<size_t>(m.limit - m.allocated), static_cast<size_t>(m.limit)};
  }
};
Allocator device_memory;

// ---- pinned host memory: page-aligned, and remembered so that is_pinned can be answered ----
std::mutex pinned_mutex;
std::map<uintptr_t, size_t> pinned;

void unpin(void* p) {
  {
    std::lock_guard<std::mutex> lock(pinned_mutex);
    pinned.erase(reinterpret_cast<uintptr_t>(p));
  }
  std::free(p);
}

bool is_pinned(const void* p) {
  const auto at = reinterpret_cast<uintptr_t>(p);
  std::lock_guard<std::mutex> lock(pinned_mutex);
  auto i = pinned.upper_bound(at);
  return i != pinned.begin() && at < (--i)->first + i->second;
}

struct HostMemory final : at::HostAllocator {
  DataPtr allocate(size_t n) override {
    void* p = nullptr;
    if (n) {
      TORCH_CHECK_WITH(OutOfMemoryError, !posix_memalign(&p, 4096, n), "out of memory for ", n, " bytes of pinned memory");
      std::lock_guard<std::mutex> lock(pinned_mutex);
      pinned[reinterpret_cast<uintptr_t>(p)] = n;
    }
    return {p, p, unpin, Device(DeviceType::CPU)};
  }
  DeleterFnPtr raw_deleter() const override { return unpin; }
  void copy_data(void* d, const void* s, size_t n) const override { default_copy_data(d, s, n); }
  bool record_event(void*, void*, Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};
HostMemory host_memory;

// ---- streams and events: a device runs its programs in order, so a stream is a token and an event a point in time ----
thread_local int64_t stream_of[64];
std::atomic<int64_t> next_stream{1};

struct EventState { double ms; };

double now_ms() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

struct Guard final : impl::DeviceGuardImplInterface {
  static int index(Device d) { return d.index() < 0 ? engine_device() : d.index(); }
  static Stream stream(int d, int64_t id) { return Stream(Stream::UNSAFE, Device(TPU, static_cast<DeviceIndex>(d)), id); }
  DeviceType type() const override { return TPU; }
  Device exchangeDevice(Device d) const override { return Device(TPU, static_cast<DeviceIndex>(engine_set_device(d.index()))); }
  Device getDevice() const override { return Device(TPU, static_cast<DeviceIndex>(engine_device())); }
  void setDevice(Device d) const override {
    if (d.index() > 0) need_device(d.index());
    engine_set_device(d.index());
  }
  void uncheckedSetDevice(Device d) const noexcept override { engine_set_device(d.index()); }
  Stream getStream(Device d) const override { return stream(index(d), stream_of[index(d) & 63]); }
  Stream getDefaultStream(Device d) const override { return stream(index(d), 0); }
  Stream getStreamFromGlobalPool(Device d, bool) const override { return stream(index(d), next_stream++); }
  Stream getNewStream(Device d, int) const override { return stream(index(d), next_stream++); }
  Stream exchangeStream(Stream s) const override {
    const int d = index(s.device());
    const int64_t old = stream_of[d & 63];
    stream_of[d & 63] = s.id();
    return stream(d, old);
  }
  void* getStreamNativeHandle(const Stream s) const override { return reinterpret_cast<void*>(s.id()); }
  // Device time: everything before the event has run when the clock is read.
  void record(void** e, const Stream& s, const DeviceIndex, const EventFlag flag) const override {
    if (!*e) *e = new EventState{};
    check(flag == EventFlag::PYTORCH_DEFAULT ? engine_flush(index(s.device())) : engine_sync(index(s.device())));
    static_cast<EventState*>(*e)->ms = now_ms();
  }
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void* e, const DeviceIndex) const noexcept override { delete static_cast<EventState*>(e); }
  DeviceIndex deviceCount() const noexcept override { return static_cast<DeviceIndex>(engine_device_count()); }
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream& s) const override { check(engine_sync(index(s.device()))); }
  void synchronizeEvent(void* e) const override {
    if (e) check(engine_sync(engine_device()));
  }
  void synchronizeDevice(const DeviceIndex d) const override { check(engine_sync(d < 0 ? engine_device() : d)); }
  void recordDataPtrOnStream(const DataPtr&, const Stream&) const override {}
  double elapsedTime(void* a, void* b, const DeviceIndex) const override {
    return static_cast<EventState*>(b)->ms - static_cast<EventState*>(a)->ms;
  }
};

// ---- generators: a seed and an offset, counted on the host [R1] [R2] ----
struct Generator final : GeneratorImpl {
  rng own{default_rng_seed_val, 0};
  rng* state;
  explicit Generator(DeviceIndex i, rng* shared = nullptr)
      : GeneratorImpl(Device(TPU, i), DispatchKeySet(DispatchKey::PrivateUse1)), state(shared ? shared : &own) {
    if (shared) *shared = own;
  }
  void set_current_seed(uint64_t s) override { *state = {s, 0}; }
  void set_offset(uint64_t o) override { state->offset = o; }
  uint64_t get_offset() const override { return state->offset; }
  uint64_t current_seed() const override { return state->seed; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return state->seed;
  }
  void set_state(const TensorImpl& t) override {
    TORCH_CHECK(t.numel() == 16 && t.device().is_cpu() && t.dtype() == caffe2::TypeMeta::Make<uint8_t>(),
                "RNG state must be a torch.ByteTensor of 16 bytes on the CPU");
    memcpy(&state->seed, t.data(), 8);
    memcpy(&state->offset, static_cast<const char*>(t.data()) + 8, 8);
  }
  intrusive_ptr<TensorImpl> get_state() const override {
    auto t = at::detail::empty_cpu({16}, ScalarType::Byte, std::nullopt, std::nullopt, std::nullopt, std::nullopt);
    memcpy(t.mutable_data_ptr(), &state->seed, 8);
    memcpy(static_cast<char*>(t.mutable_data_ptr()) + 8, &state->offset, 8);
    return t.getIntrusivePtr();
  }
  Generator* clone_impl() const override {
    auto* g = new Generator(device_.index());
    g->own = *state;
    return g;
  }
};

// ---- hooks ----
struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return engine_device_count() > 0; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  const at::Generator& getDefaultGenerator(DeviceIndex i) const override { return default_generator(i); }
  at::Generator getNewGenerator(DeviceIndex i) const override {
    return at::make_generator<Generator>(i < 0 ? static_cast<DeviceIndex>(engine_device()) : i);
  }
  Device getDeviceFromPtr(void* p) const override {
    int64_t delta;
    storage* st = storage_find(reinterpret_cast<uint64_t>(p), &delta);
    TORCH_CHECK(st, "tpu: not an address of device memory");
    return Device(TPU, static_cast<DeviceIndex>(storage_device(st)));
  }
  bool isPinnedPtr(const void* p) const override { return is_pinned(p); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &host_memory; }
  DeviceIndex deviceCount() const override { return static_cast<DeviceIndex>(engine_device_count()); }
  void setCurrentDevice(DeviceIndex d) const override {
    if (d > 0) need_device(d);
    engine_set_device(d);
  }
  DeviceIndex getCurrentDevice() const override { return static_cast<DeviceIndex>(engine_device()); }
  DeviceIndex exchangeDevice(DeviceIndex d) const override { return static_cast<DeviceIndex>(engine_set_device(d)); }
  DeviceIndex maybeExchangeDevice(DeviceIndex d) const override { return static_cast<DeviceIndex>(engine_set_device(d)); }
  void resizePrivateUse1Bytes(const Storage& s, size_t n) const override { resize_bytes(s.unsafeGetStorageImpl(), n); }
};

struct Register {
  Register() {
    SetAllocator(TPU, &device_memory, 1);
    at::setHostAllocator(TPU, &host_memory, 1);
    impl::registerDeviceGuard(TPU, new Guard);
    at::RegisterPrivateUse1HooksInterface(new Hooks);
  }
} register_all;

}  // namespace

c10::Allocator* allocator() { return &device_memory; }

rng* rng_of(const at::Generator& g) {
  TORCH_CHECK(g.device().type() == TPU, "Expected a 'tpu' device type for generator but found '", g.device().type(), "'");
  return static_cast<Generator*>(g.unsafeGetGeneratorImpl())->state;
}

const at::Generator& default_generator(DeviceIndex i) {
  static std::mutex mutex;
  static std::map<int, at::Generator> made;
  const int d = i < 0 ? engine_device() : i;
  std::lock_guard<std::mutex> lock(mutex);
  auto at = made.find(d);
  if (at == made.end()) at = made.emplace(d, at::make_generator<Generator>(static_cast<DeviceIndex>(d), engine_default_rng(d))).first;
  return at->second;
}

void resize_bytes(StorageImpl* s, size_t nbytes) {
  int64_t delta;
  storage* st = storage_of(s, &delta);
  if (!st) {
    DeviceScope scope(s->device().index());
    s->set_data_ptr_noswap(device_memory.allocate(nbytes));
  } else {
    check(storage_resize(st, nbytes));
    // The address follows the size; the storage behind it is the same.
    s->_mutable_data_ptr_no_checks().release_context();
    s->set_data_ptr_noswap(data_ptr_of(st));
  }
  s->set_nbytes(nbytes);
}

}  // namespace glue
