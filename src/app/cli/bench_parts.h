// Parts of `linnet bench`, one file each. They return the exit code.
#pragma once
#include "app/bench/measure.h"

namespace linnet {
struct BenchArguments {
  std::string name, precision = "fp32", attention_precision = "same", device = "cpu", isa = "auto", write_data;
  std::string storage = "auto", recompute = "auto", memory, sweep, chart;
  int threads = 0;
  double seconds = 5, dropout = -1;
  bool json = false, list = false, profile = false, plan = false, no_parts = false;
  int64_t batch = 0, ranks = 0, beam = 0;
  std::string quantize = "none", model, batches, lengths, precisions, source, translations;
  std::vector<std::string> keep = {};
};

// `linnet bench NAME --sweep batch=1,2,4`: table, JSON and chart. User error for bad batches. `limit`: bytes.
int bench_sweep(
    const BenchArguments& arguments, const MeasureOptions& measuring, uint64_t limit, uint64_t resident_at_start);

// `linnet bench network`: speed of messages between ranks, for `linnet plan --network`. --ranks starts so many here;
// otherwise measures the starter's. --threads: threads that compute on each rank, to see if messages move meanwhile.
int bench_network(const BenchArguments& arguments);

// `linnet bench infer`: tables, JSON and charts of encoders and decoders.
int bench_infer(const BenchArguments& arguments, int threads);
}  // namespace linnet
