// What tests ask of the fake CUDA runtime (fake_runtime.cpp).
#pragma once
#include <cuda_runtime_api.h>
#include <functional>

namespace linnet::testing {
// A kernel: done when somebody waits for the stream, or kept by the capture that runs.
void queue_on_stream(cudaStream_t stream, std::function<void()> task);
int current_gpu();
// Kernels, copies and fills that were ever queued, those of recordings among them.
int64_t queued_so_far();
// Bytes that copies have brought, or will bring, from a GPU to the host.
int64_t copied_to_host();
// Of processes that stand for machines: their GPUs have other identities.
void be_machine(int number);
// From now on memory is only reserved and nothing that is queued is done: for counting what large models queue.
void only_count();
}  // namespace linnet::testing
