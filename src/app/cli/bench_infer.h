// `linnet bench infer`: tables, JSON and chart of encoders and decoders at inference.
#pragma once
#include <string>

namespace linnet {

struct InferRequest {
  std::string model;                         // a folder or packed model; "gpt2-124m"; empty: MiniLM's sizes
  std::string batches, lengths, precisions;  // lists; empty: the default
  std::string chart;                         // a file for the SVG; empty: none
  double seconds = 5;
  bool json = false;
};

int bench_infer(const InferRequest& request, int threads);

}  // namespace linnet
