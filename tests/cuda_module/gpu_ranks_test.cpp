// Ranks on GPUs, which NCCL joins: over the fake runtime and a fake NCCL (fake_nccl.cpp), with a process for each rank.
#include "engine/cuda/gpu_ranks.h"
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <cmath>
#include <cstdlib>
#include "cuda_module/fake_gpu_backend.h"
#include "cuda_module/fake_runtime.h"
#include "cuda_module/forked_ranks.h"
#include "distributed/comm/shard_sum.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "error_of.h"
#include "models/nn/layers.h"
#include "training/trainer/learner.h"
#include "training/trainer/sharded_step.h"

namespace linnet {
namespace {
constexpr size_t kFloat = sizeof(float);

class GpuRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!LINNET_HAS_NCCL) GTEST_SKIP() << "built where there was no nccl.h";
  }
};

// What the fake was asked since the last call.
std::string calls() {
  void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
  if (!library) return {};
  return reinterpret_cast<const char* (*)()>(dlsym(library, "linnet_fake_nccl_calls"))();
}

struct Gpu {
  explicit Gpu(Communicator& world) {
    testing::be_machine(world.rank());
    ops = testing::fake_gpu_ops();
  }
  std::span<float> floats(size_t count) {
    return {reinterpret_cast<float*>(device.allocate(count * kFloat, "test")), count};
  }
  std::span<float> floats(std::span<const float> values) {
    const std::span<float> memory = floats(values.size());
    device.upload(reinterpret_cast<std::byte*>(memory.data()), reinterpret_cast<const std::byte*>(values.data()),
        values.size_bytes());
    device.wait();
    return memory;
  }
  std::vector<float> values(std::span<const float> memory) {
    std::vector<float> values(memory.size());
    device.download(reinterpret_cast<std::byte*>(values.data()), reinterpret_cast<const std::byte*>(memory.data()),
        memory.size_bytes());
    device.wait();
    return values;
  }
  CudaDevice device{0};
  std::vector<BackendOp> ops;
};

std::vector<float> values_of(int64_t shard, size_t count) {
  std::vector<float> values;
  for (size_t i = 0; i < count; ++i)
    values.push_back(std::sin(0.7F * static_cast<float>(i) + static_cast<float>(shard)) * 1e3F);
  return values;
}

// The sum of shards in the order of the tree, as one rank has it.
std::vector<float> sum_of_one(int64_t shards, size_t count) {
  ThreadPool pool(1);
  const ShardShare share{shards, 0, 1};
  ShardSum sum(single_process(), share, {});
  std::vector<std::vector<float>> all;
  std::vector<std::span<float>> waiting;
  ShardStack stack;
  for (int64_t shard = 0; shard < shards; ++shard) {
    all.push_back(values_of(shard, count));
    waiting.emplace_back(all.back());
    for (int64_t additions = stack.push({shard, 1}); additions > 0; --additions) {
      add_values(pool, waiting[waiting.size() - 2].data(), waiting.back().data(), count);
      waiting.pop_back();
    }
  }
  for (; waiting.size() > 1; waiting.pop_back())
    add_values(pool, waiting[waiting.size() - 2].data(), waiting.back().data(), count);
  return {waiting[0].begin(), waiting[0].end()};
}

// This rank's nodes of the tree, and the sum of all ranks' on each GPU.
std::vector<float> sum_on_gpus(Gpu& gpu, DeviceRanks& ranks, const ShardShare& share, size_t count) {
  std::vector<std::span<float>> nodes;
  ShardStack stack;
  for (int64_t i = 0; i < share.count(); ++i) {
    nodes.push_back(gpu.floats(values_of(share.first() + i, count)));
    for (int64_t additions = stack.push({share.first() + i, 1}); additions > 0; --additions) {
      ranks.add(nodes[nodes.size() - 2].data(), nodes.back().data(), count);
      nodes.pop_back();
    }
  }
  const std::span<float> workspace = gpu.floats(ShardSum::workspace_size(share, count, true));
  ShardSum sum(ranks, share, workspace);
  const SliceBounds bounds = slice_bounds(count, share.ranks);
  ThreadPool unused(1);
  sum.reduce_scatter(nodes, bounds, unused);
  ranks.all_gather_slices(nodes[0], bounds);
  return gpu.values(nodes[0]);
}

TEST_F(GpuRanks, SumsAreTheBitsOfOneRankOnTheHost) {
  for (const auto& [ranks, shards, count] : {std::tuple{2, 4, 50000}, {3, 6, 20000}, {4, 4, 16384}, {2, 2, 70}})
    testing::run_forked_ranks(ranks, [&](Communicator& world) {
      Gpu gpu(world);
      JoinedDevices joined = join_gpus(gpu.device, world);
      ASSERT_TRUE(joined.ranks) << joined.reason;
      EXPECT_EQ(joined.ranks->text(), "NCCL 2.27.3");
      const auto size = static_cast<size_t>(count);
      EXPECT_EQ(sum_on_gpus(gpu, *joined.ranks, {shards, world.rank(), ranks}, size), sum_of_one(shards, size));
    });
}

// Two ranks with equal slices: one group that sends the other's half and receives one's own, then a gathering.
TEST_F(GpuRanks, MessagesOfASumAreOneGroupAndAGathering) {
  testing::run_forked_ranks(2, [](Communicator& world) {
    Gpu gpu(world);
    JoinedDevices joined = join_gpus(gpu.device, world);
    ASSERT_TRUE(joined.ranks) << joined.reason;
    EXPECT_EQ(calls(), "");
    sum_on_gpus(gpu, *joined.ranks, {2, world.rank(), 2}, 4 * kSliceUnit);
    const std::string other = std::to_string(1 - world.rank()), half = std::to_string(2 * kSliceUnit * kFloat);
    EXPECT_EQ(calls(),
        "send " + half + " to " + other + ", receive " + half + " from " + other + "\nall_gather " + half + "\n");
    sum_on_gpus(gpu, *joined.ranks, {2, world.rank(), 2}, 3 * kSliceUnit);
    const std::string first = std::to_string(kSliceUnit * kFloat);
    const std::string theirs = world.rank() == 0 ? half : first, own = world.rank() == 0 ? first : half;
    EXPECT_EQ(calls(), "send " + theirs + " to " + other + ", receive " + own + " from " + other + "\nbroadcast " +
                           first + " of 0, broadcast " + half + " of 1\n");
  });
}

TEST_F(GpuRanks, NothingIsDoneBeforeTheDeviceGetsThere) {
  testing::run_forked_ranks(2, [](Communicator& world) {
    Gpu gpu(world);
    JoinedDevices joined = join_gpus(gpu.device, world);
    ASSERT_TRUE(joined.ranks) << joined.reason;
    const float own = static_cast<float>(world.rank() + 1);
    const std::span<float> values = gpu.floats(std::vector<float>{own, 0});
    const Communicator::Outgoing out{1 - world.rank(), std::as_bytes(values.first(1))};
    const Communicator::Incoming in{1 - world.rank(), std::as_writable_bytes(values.last(1))};
    // Queued: the value that is sent is the one of the copy before it, and what is received is added behind it.
    const std::vector<float> ten{10 * own};
    gpu.device.upload(
        reinterpret_cast<std::byte*>(values.data()), reinterpret_cast<const std::byte*>(ten.data()), kFloat);
    joined.ranks->messages().exchange({&out, 1}, {&in, 1});
    joined.ranks->add(values.data(), values.data() + 1, 1);
    EXPECT_EQ(gpu.values(values), (std::vector<float>{30, 10 * (3 - own)}));
  });
}

TEST_F(GpuRanks, MemoryOfTheHostIsRefusedInOneLine) {
  testing::run_forked_ranks(2, [](Communicator& world) {
    Gpu gpu(world);
    JoinedDevices joined = join_gpus(gpu.device, world);
    ASSERT_TRUE(joined.ranks) << joined.reason;
    const std::vector<float> value{1};
    const Communicator::Outgoing out{1 - world.rank(), std::as_bytes(std::span(value))};
    const auto send = [&] { joined.ranks->messages().exchange({&out, 1}, {}); };
    EXPECT_EQ(error_of(send, ErrorKind::kSystem), "NCCL: sending: an error of the fake NCCL");
  });
}

// Every rank learns why, and messages go through the host.
TEST_F(GpuRanks, WhatCannotBeJoinedIsToldOnEveryRank) {
  testing::run_forked_ranks(2, [](Communicator& world) {
    Gpu gpu(world);
    testing::be_machine(7);
    EXPECT_EQ(join_gpus(gpu.device, world).reason, "ranks 0 and 1 have one GPU");
    testing::be_machine(world.rank());
    if (world.rank() == 1) setenv("LINNET_FAKE_NCCL", "21804", 1);
    const JoinedDevices joined = join_gpus(gpu.device, world);
    EXPECT_FALSE(joined.ranks);
    EXPECT_EQ(joined.reason, "rank 1 has NCCL 2.18.4, and rank 0 has NCCL 2.27.3");
  });
}

TEST_F(GpuRanks, AFailureOfOneRankIsAnErrorOfAll) {
  testing::run_forked_ranks(2, [](Communicator& world) {
    Gpu gpu(world);
    if (world.rank() == 0) setenv("LINNET_FAKE_NCCL_FAILS", "ncclGetUniqueId", 1);
    EXPECT_EQ(error_of([&] { join_gpus(gpu.device, world); }, ErrorKind::kSystem),
        "NCCL: making an id for the ranks: an error of the fake NCCL");
  });
}

// Training: batch normalization has buffers; there are parameters enough for several slices.
constexpr int64_t kRows = 5, kChannels = 3;
struct Net : Module {
  BatchNorm norm{this, "norm", kChannels};
  Linear up{this, "up", kChannels, 64}, wide{this, "wide", 64, 130}, head{this, "head", 130, 10};
  Tensor operator()(Tensor x) { return head(tanh(wide(tanh(up(norm(x)))))); }
};

LossFunction loss_of(Net& net) {
  return [&net](Trace& trace) -> Loss {
    const Tensor x = trace.input("x", {DType::kF32, {kRows, kChannels}});
    return {sum_to(square(net(x) + trace.number(-0.5)), {}), trace.number(kRows)};
  };
}

struct Trained {
  std::vector<float> parameters;
  std::vector<double> losses, norms;
  int64_t copied = 0;  // bytes to the host in the last step
  bool operator==(const Trained& other) const {
    return parameters == other.parameters && losses == other.losses && norms == other.norms;
  }
};

Trained train(Gpu& gpu, Communicator& world, DeviceRanks* ranks, int64_t shards, int64_t micros) {
  const Backend backend{&gpu.device, gpu.ops};
  Net net;
  SingleShapeLearner learner(net, loss_of(net),
      {.optimizer = {.weight_decay = 0.1, .clip_norm = 1, .ema_decay = 0.9},
          .accumulate_steps = micros,
          .shards = {shards, world.rank(), world.size()},
          .backend = &backend});
  Trainer& trainer = learner.trainer();
  ShardedStep step(trainer, world, nullptr, ranks);
  Trained trained;
  for (int64_t number = 1; number <= 3; ++number) {
    const int64_t before = testing::copied_to_host();
    const BatchShare share = step.batches();
    int64_t taken = 0;
    step.begin();
    for (int64_t shard = 0; shard < trainer.options().shards.count(); ++shard) {
      for (int64_t micro = 0; micro < micros; ++micro) {
        std::vector<float> x;
        for (int64_t i = 0; i < kRows * kChannels; ++i)
          x.push_back(std::sin(static_cast<float>(1.7 * i + 0.3 * share.index(taken) + 5 * number)));
        ++taken;
        learner.set<float>("x", x);
        step.accumulate(0, number, micro);
      }
      step.add();
    }
    step.finish();
    const StepReport report = trainer.apply(0.01, number);
    step.share_update();
    trained.losses.push_back(report.loss), trained.norms.push_back(report.grad_norm);
    trained.copied = testing::copied_to_host() - before;
  }
  trainer.state().pull();
  const float* const parameters = trainer.state().flat("parameters");
  trained.parameters.assign(parameters, parameters + trainer.state().layout().stored_count());
  return trained;
}

TEST_F(GpuRanks, TrainToTheBitsOfOneRankAndGradientsStayOnTheGpus) {
  for (const auto& [ranks, shards, micros] : {std::tuple{2, 4, 1}, {2, 2, 2}, {4, 4, 1}})
    testing::run_forked_ranks(ranks, [&](Communicator& world) {
      Gpu gpu(world);
      // Through the host, as where there is no NCCL; one rank without and with its device; all ranks by NCCL.
      const Trained one = train(gpu, single_process(), nullptr, shards, micros);
      JoinedDevices alone = join_gpus(gpu.device, single_process());
      EXPECT_EQ(train(gpu, single_process(), alone.ranks.get(), shards, micros), one);
      EXPECT_EQ(train(gpu, world, nullptr, shards, micros), one);
      EXPECT_EQ(calls(), "");
      JoinedDevices joined = join_gpus(gpu.device, world);
      ASSERT_TRUE(joined.ranks) << joined.reason;
      const Trained by_nccl = train(gpu, world, joined.ranks.get(), shards, micros);
      EXPECT_EQ(by_nccl, one);
      EXPECT_NE(calls(), "");
      EXPECT_TRUE(std::isfinite(one.losses.back()));
      // Losses, counts and running statistics, and no gradient: that would be a float for each parameter.
      EXPECT_LT(by_nccl.copied * 20, static_cast<int64_t>(one.parameters.size() * kFloat));
    });
}
}  // namespace
}  // namespace linnet
