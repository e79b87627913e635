#include "engine/cuda/gpu_ranks.h"
#include <algorithm>
#include <exception>
#include "distributed/comm/agreement.h"
#include "engine/ops/collective/collective.h"

namespace linnet {
namespace {
// A rank's use of NCCL; with one rank, nothing.
class NcclWorld : public Communicator {
 public:
  NcclWorld(CudaDevice& device, int rank, int size) : device_(device), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
#if LINNET_HAS_NCCL
  void join(const ncclUniqueId& id) {
    device_.stream();  // makes the GPU this thread's, which is the one that NCCL takes
    nccl_check(nccl().init_rank(&comm_, size_, id, rank_), "joining the ranks");
  }
  // Destroying waits for the other ranks, which may be gone after an error here.
  ~NcclWorld() override {
    if (!comm_) return;
    if (std::uncaught_exceptions() > 0) {
      nccl().abort(comm_);
    } else {
      cudaStreamSynchronize(device_.stream());
      nccl().destroy(comm_);
    }
  }

  // One group lets NCCL move all of the messages at once, in any order that both sides can.
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming, Wait) override {
    const auto is_empty = [](const auto& message) { return message.bytes.empty(); };
    if (std::ranges::all_of(outgoing, is_empty) && std::ranges::all_of(incoming, is_empty)) return;
    const cudaStream_t stream = device_.stream();
    nccl_check(nccl().group_start(), "beginning messages");
    for (const auto& [to, bytes] : outgoing)
      if (!bytes.empty()) nccl_check(nccl().send(bytes.data(), bytes.size(), ncclInt8, to, comm_, stream), "sending");
    for (const auto& [from, bytes] : incoming)
      if (!bytes.empty())
        nccl_check(nccl().receive(bytes.data(), bytes.size(), ncclInt8, from, comm_, stream), "receiving");
    nccl_check(nccl().group_end(), "exchanging messages");
  }

  void all_gather(std::span<float> all, const SliceBounds& bounds) {
    const cudaStream_t stream = device_.stream();
    const Slice own = slice(bounds, rank_);
    if (all.empty() || size_ == 1) return;
    bool is_even = true;
    for (int rank = 0; rank < size_; ++rank) is_even = is_even && slice(bounds, rank).count == own.count;
    if (is_even)  // in place
      return nccl_check(
          nccl().all_gather(all.data() + own.first, all.data(), own.count, ncclFloat32, comm_, stream), "gathering");
    nccl_check(nccl().group_start(), "beginning messages");
    for (int rank = 0; rank < size_; ++rank) {
      const Slice part = slice(bounds, rank);
      float* const values = all.data() + part.first;
      if (part.count > 0)
        nccl_check(nccl().broadcast(values, values, part.count, ncclFloat32, rank, comm_, stream), "gathering");
    }
    nccl_check(nccl().group_end(), "gathering");
  }

 private:
  ncclComm_t comm_ = nullptr;
#else
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming, Wait) override {
    if (!outgoing.empty() || !incoming.empty()) fail_internal("messages between GPUs without NCCL");
  }
  void all_gather(std::span<float>, const SliceBounds&) {}

 private:
#endif
  CudaDevice& device_;
  const int rank_, size_;
};

class GpuRanks : public DeviceRanks {
 public:
  GpuRanks(CudaDevice& device, int rank, int size, std::string text = {})
      : device_(device), world_(device, rank, size), text_(std::move(text)) {}
  NcclWorld& messages() override { return world_; }
  void all_gather_slices(std::span<float> all, const SliceBounds& bounds) override { world_.all_gather(all, bounds); }
  void add(float* into, const float* from, size_t count) override {
    add_values_cuda(&device_, into, from, static_cast<int64_t>(count));
  }
  void copy(float* into, const float* from, size_t count) override {
    if (count > 0)
      device_.copy(reinterpret_cast<std::byte*>(into), reinterpret_cast<const std::byte*>(from), count * sizeof(float));
  }
  void clear(float* values, size_t count) override {
    cuda_check(cudaMemsetAsync(values, 0, count * sizeof(float), device_.stream()), "clearing memory");
  }
  std::string text() const override { return text_; }

 private:
  CudaDevice& device_;
  NcclWorld world_;
  const std::string text_;
};

#if LINNET_HAS_NCCL

// The first byte says whether this rank has NCCL. Then follow version and GPU, or what is missing.
constexpr char kHas = '+', kLacks = '-';

std::string own_part(CudaDevice& device) {
  try {
    cudaDeviceProp properties;
    cuda_check(cudaGetDeviceProperties(&properties, device.index()), "reading the GPU's properties");
    return kHas + nccl_version() + "\n" + std::string(properties.uuid.bytes, sizeof properties.uuid.bytes);
  } catch (const Error& error) {
    return kLacks + std::string(error.what());
  }
}

std::string why_not(const std::vector<std::string>& parts) {  // empty if all ranks can be joined
  std::map<std::string, size_t> ranks_of_gpu;
  const auto name = [](size_t rank) { return "rank " + std::to_string(rank); };
  for (size_t rank = 0; rank < parts.size(); ++rank)
    if (parts[rank][0] == kLacks) return name(rank) + ": " + parts[rank].substr(1);
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const auto version = [&](size_t r) { return parts[r].substr(1, parts[r].find('\n') - 1); };
    if (version(rank) != version(0))
      return name(rank) + " has NCCL " + version(rank) + ", and rank 0 has NCCL " + version(0);
    const auto [other, is_first] = ranks_of_gpu.emplace(parts[rank].substr(parts[rank].find('\n')), rank);
    if (!is_first) return "ranks " + std::to_string(other->second) + " and " + std::to_string(rank) + " have one GPU";
  }
  return {};
}

JoinedDevices join_by_nccl(CudaDevice& device, Communicator& world) {
  if (const std::string reason = why_not(gather_texts(world, own_part(device))); !reason.empty())
    return {nullptr, reason};
  ncclUniqueId id{};
  run_on_all(world, [&] {
    if (world.rank() == 0) nccl_check(nccl().get_unique_id(&id), "making an id for the ranks");
  });
  id = broadcast_value(world, 0, id);
  auto ranks = std::make_unique<GpuRanks>(device, world.rank(), world.size(), "NCCL " + nccl_version());
  run_on_all(world, [&] { ranks->messages().join(id); });
  return {std::move(ranks), {}};
}

#else

JoinedDevices join_by_nccl(CudaDevice&, Communicator&) {
  return {nullptr, "the CUDA module was built where there was no nccl.h"};
}

#endif
}  // namespace

JoinedDevices join_gpus(CudaDevice& device, Communicator& world) {
  if (world.size() == 1) return {std::make_unique<GpuRanks>(device, 0, 1), {}};
  return join_by_nccl(device, world);
}
}  // namespace linnet
