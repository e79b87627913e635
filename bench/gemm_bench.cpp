// Matrix products of the reference models beside oneDNN and OpenBLAS, where these are installed, in percent of what the
// machine's multiply-add units can do:
//
//   gemm_bench [threads=1] [seconds a product=0.1] [filter] [instruction set]      e.g.  gemm_bench 2 0.3 x768 avx2
//
// The instruction set is Linnet's alone; ONEDNN_MAX_CPU_ISA=AVX2 in the environment holds oneDNN to AVX2.
// A row is a linear layer, rows x outputs x inputs, with its three products: y = x W^T, dx = dy W, dW = dy^T x. The
// libraries take turns within every product and the best time of each counts, so that a busy machine does harm to all
// alike. For bf16, oneDNN is given operands that are bf16 already; Linnet rounds them from fp32 on the way. "stored" is
// what a training step in bf16 does: activations and their gradients are bf16 in memory, weights and theirs fp32.
#include <time.h>
#include <unistd.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>
#include "base/thread_pool.h"
#include "engine/device/device.h"
#include "engine/kernels/gemm/gemm.h"
#include "engine/kernels/precision.h"
#include "engine/kernels/processor.h"
#ifdef LINNET_BENCH_ONEDNN
#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>
#endif
#ifdef LINNET_BENCH_OPENBLAS
#include <cblas.h>
#endif

namespace linnet {
namespace {
struct Layer {
  int64_t rows, outputs, inputs;
};

constexpr Layer kLayers[] = {
    {1024, 256, 256}, {1024, 768, 256}, {1024, 1024, 256}, {1024, 256, 1024},                     // R at 64 + 64 tokens
    {2048, 256, 256}, {2048, 768, 256}, {2048, 1024, 256}, {2048, 256, 1024}, {2048, 6000, 256},  // R, Multi30k
    {2048, 384, 384}, {2048, 1152, 384}, {2048, 1536, 384}, {2048, 384, 1536},                    // GPT, small
    {2048, 768, 768}, {2048, 2304, 768}, {2048, 3072, 768}, {2048, 768, 3072},                    // GPT-2, BERT
    {512, 50257, 768},                                                                            // their vocabulary
};

// Element types and transposes as in GemmArgs; a, b, c dense.
struct Product {
  int64_t m, n, k;
  bool trans_a, trans_b, accumulate;
  double operations() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
};

Product product(const Layer& l, int kind) {
  if (kind == 0) return {l.rows, l.outputs, l.inputs, false, true, false};
  if (kind == 1) return {l.rows, l.inputs, l.outputs, false, false, false};
  return {l.outputs, l.inputs, l.rows, true, false, l.outputs > 50000};  // the loss comes in chunks of rows
}

struct Operands {
  float *a, *b, *c;
  std::byte* workspace;
};

using Run = std::function<void()>;

Run linnet_product(const Product& p, const Operands& o, Precision precision, ThreadPool& pool) {
  GemmArgs args;
  args.m = p.m, args.n = p.n, args.k = p.k;
  args.trans_a = p.trans_a, args.trans_b = p.trans_b, args.accumulate = p.accumulate, args.precision = precision;
  args.a = o.a, args.lda = p.trans_a ? p.m : p.k;
  args.b = o.b, args.ldb = p.trans_b ? p.k : p.n;
  args.c = o.c, args.ldc = p.n;
  return [=, &pool] { gemm(args, o.workspace, pool); };
}

// As in a training step: activations and their gradients in bf16, weights and theirs in fp32.
class StoredProduct {
 public:
  StoredProduct(const Product& p, int kind, const Operands& o)
      : a_(o.a, o.a + p.m * p.k), b_(o.b, o.b + p.k * p.n), c_(static_cast<size_t>(p.m * p.n)), bias_(o.b, o.b + p.n) {
    args_.m = p.m, args_.n = p.n, args_.k = p.k;
    args_.trans_a = p.trans_a, args_.trans_b = p.trans_b, args_.precision = Precision::kBf16;
    args_.a = a_.data(), args_.lda = p.trans_a ? p.m : p.k;
    args_.ldb = p.trans_b ? p.k : p.n, args_.ldc = p.n;
    if (kind == 2) {
      args_.b = b_.data(), args_.c = o.c, args_.accumulate = p.accumulate;
    } else {
      args_.b = o.b, args_.c = c_.data();
      if (kind == 0) args_.bias = bias_.data();
    }
  }
  void run(const Operands& o, ThreadPool& pool) const { gemm(args_, o.workspace, pool); }

 private:
  std::vector<Bfloat16> a_, b_, c_;
  std::vector<float> bias_;
  GemmArgs args_;
};

#ifdef LINNET_BENCH_ONEDNN
Run onednn_product(const Product& p, const Operands& o, Precision precision) {
  using namespace dnnl;
  static engine cpu(engine::kind::cpu, 0);
  const auto type = precision == Precision::kBf16 ? memory::data_type::bf16 : memory::data_type::f32;
  const memory::desc a({p.m, p.k}, type, p.trans_a ? memory::dims{1, p.m} : memory::dims{p.k, 1});
  const memory::desc b({p.k, p.n}, type, p.trans_b ? memory::dims{1, p.k} : memory::dims{p.n, 1});
  const memory::desc c({p.m, p.n}, memory::data_type::f32, memory::dims{p.n, 1});
  primitive_attr attributes;
  attributes.set_scratchpad_mode(scratchpad_mode::library);
  if (p.accumulate) {
    post_ops sum;
    sum.append_sum();
    attributes.set_post_ops(sum);
  }
  const matmul::primitive_desc description({a, b, c}, attributes, cpu);
  const auto primitive = std::make_shared<matmul>(description);
  const std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, memory(a, cpu, o.a)},
      {DNNL_ARG_WEIGHTS, memory(b, cpu, o.b)}, {DNNL_ARG_DST, memory(c, cpu, o.c)}};
  return [=] {
    static stream work(cpu);
    primitive->execute(work, arguments);
    work.wait();
  };
}
#endif

#ifdef LINNET_BENCH_OPENBLAS
Run openblas_product(const Product& p, const Operands& o) {
  return [=] {
    const auto size = [](int64_t x) { return static_cast<blasint>(x); };
    cblas_sgemm(CblasRowMajor, p.trans_a ? CblasTrans : CblasNoTrans, p.trans_b ? CblasTrans : CblasNoTrans, size(p.m),
        size(p.n), size(p.k), 1, o.a, size(p.trans_a ? p.m : p.k), o.b, size(p.trans_b ? p.k : p.n),
        p.accumulate ? 1 : 0, o.c, size(p.n));
  };
}
#endif

double seconds_of(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// The best time of each, taking turns. With one thread it is the processor's, which others on the machine disturb less.
std::vector<double> best_times(const std::vector<Run>& runs, double seconds, int threads) {
  const clockid_t clock = threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  std::vector<double> best(runs.size(), 1e9);
  const double start = seconds_of(CLOCK_MONOTONIC), enough = seconds * static_cast<double>(runs.size());
  for (int round = 0; round < 3 || seconds_of(CLOCK_MONOTONIC) - start < enough; ++round)
    for (size_t i = 0; i < runs.size(); ++i) {
      const double before = seconds_of(clock);
      runs[i]();
      best[i] = std::min(best[i], seconds_of(clock) - before);
    }
  return best;
}

void fill(float* x, int64_t count) {
  uint32_t state = 12345;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    x[i] = static_cast<float>(static_cast<int32_t>(state >> 9) % 2001 - 1000) * 1e-3f;
  }
}

void compare(int threads, double seconds, const std::string& filter) {
  ThreadPool pool(threads);
  const double peak[] = {measured_peak_gflops(Precision::kF32, pool), measured_peak_gflops(Precision::kBf16, pool)};
  std::printf("%d threads, peak %.0f GFLOP/s fp32, %.0f bf16; GFLOP/s and percent of it\n", threads, peak[0], peak[1]);
  std::map<std::string, std::pair<double, int>> means;
  for (const Layer& layer : kLayers) {
    const std::string name =
        std::to_string(layer.rows) + "x" + std::to_string(layer.outputs) + "x" + std::to_string(layer.inputs);
    if (name.find(filter) == std::string::npos) continue;
    for (int kind = 0; kind < 3; ++kind) {
      const Product p = product(layer, kind);
      const auto buffer = [&](int64_t floats) { return Buffer(static_cast<size_t>(floats) * sizeof(float)); };
      Buffer a = buffer(p.m * p.k), b = buffer(p.k * p.n), c = buffer(p.m * p.n),
             workspace(std::max(gemm_workspace(1, p.m, p.n, p.k, threads),
                           gemm_workspace(1, p.m, p.n, p.k, threads, /*in_bf16=*/true)) +
                       64);
      const Operands o{reinterpret_cast<float*>(a.data()), reinterpret_cast<float*>(b.data()),
          reinterpret_cast<float*>(c.data()), workspace.data()};
      fill(o.a, p.m * p.k), fill(o.b, p.k * p.n), fill(o.c, p.m * p.n);
      std::printf("%-14s %-8s", name.c_str(), kind == 0 ? "x W^T" : kind == 1 ? "dy W" : "dy^T x");
      for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
        if (precision == Precision::kBf16 && !gemm_has_bf16()) continue;
        std::vector<std::string> names{"linnet"};
        std::vector<Run> runs{linnet_product(p, o, precision, pool)};
        std::optional<StoredProduct> stored;
        if (precision == Precision::kBf16) {
          stored.emplace(p, kind, o);
          names.emplace_back("stored"), runs.push_back([&] { stored->run(o, pool); });
        }
#ifdef LINNET_BENCH_ONEDNN
        names.emplace_back("onednn"), runs.push_back(onednn_product(p, o, precision));
#endif
#ifdef LINNET_BENCH_OPENBLAS
        if (precision == Precision::kF32) names.emplace_back("openblas"), runs.push_back(openblas_product(p, o));
#endif
        const std::vector<double> times = best_times(runs, seconds, threads);
        std::printf("  %s", precision_name(precision));
        for (size_t i = 0; i < times.size(); ++i) {
          const double speed = p.operations() / times[i] * 1e-9,
                       percent = 100 * speed / peak[precision == Precision::kBf16];
          std::printf(" %s %.0f (%.1f%%)", names[i].c_str(), speed, percent);
          auto& [sum, count] = means[std::string(precision_name(precision)) + " " + names[i]];
          sum += percent, ++count;
        }
      }
      std::printf("\n");
      std::fflush(stdout);
    }
  }
  for (const auto& [name, mean] : means) std::printf("mean %s %.1f%%\n", name.c_str(), mean.first / mean.second);
}

// The libraries' own threads must not spin while another library is measured, and must not be held back by what this
// machine's environment says; both are read when they are loaded.
void settle_environment(char** argv) {
  if (std::getenv("LINNET_BENCH_CHILD")) return;
  setenv("LINNET_BENCH_CHILD", "1", 1);
  setenv("OMP_WAIT_POLICY", "passive", 1);
  setenv("OPENBLAS_THREAD_TIMEOUT", "4", 1);
  unsetenv("OPENBLAS_CORETYPE");
  unsetenv("OPENBLAS_L2_SIZE");
  execv("/proc/self/exe", argv);
}
}  // namespace
}  // namespace linnet

int main(int argc, char** argv) {
  linnet::settle_environment(argv);
  if (argc > 4) linnet::force_isa(argv[4]);
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
#ifdef LINNET_BENCH_ONEDNN
  omp_set_num_threads(threads);
#endif
#ifdef LINNET_BENCH_OPENBLAS
  openblas_set_num_threads(threads);
#endif
  linnet::compare(threads, argc > 2 ? std::atof(argv[2]) : 0.1, argc > 3 ? argv[3] : "");
}
