// Parts of `linnet bench`, each in a file of its own. They return the exit code.
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

// `linnet bench NAME --sweep batch=1,2,4`: the table, JSON and chart of a sweep over batches. User error for values
// that are not batches. `limit`: bytes that there are.
int bench_sweep(const BenchArguments& arguments, const MeasureOptions& measuring, uint64_t limit,
                uint64_t resident_at_start);

// `linnet bench network`: how fast ranks exchange messages, as --network of `linnet plan` takes it. With --ranks starts
// so many on this machine, otherwise measures with the ranks that a starter has begun. --threads: of each rank, which
// compute when it is measured whether messages move meanwhile.
int bench_network(const BenchArguments& arguments);

// `linnet bench infer`: tables, JSON and chart of encoders and decoders at inference.
int bench_infer(const BenchArguments& arguments, int threads);

}  // namespace linnet
