// Recurrent layers: one node with a loop over the positions of a sequence, unrolled for a GPU.
#pragma once
#include <cstdint>
#include <string>
#include "linnet/module.h"
#include "linnet/tensor.h"

namespace linnet {
// What a recurrent layer carries from one position to the next: [B, hidden] each; undefined: zeros. A Gru has no cell.
struct RecurrentState {
  // What the layer gives at a position.
  Tensor hidden = {};
  // The memory of an Lstm.
  Tensor cell = {};
};

// Long short-term memory (Hochreiter & Schmidhuber 1997), as torch.nn.LSTM with one layer: parameters weight_ih_l0
// [4 hidden, in], weight_hh_l0 [4 hidden, hidden], bias_ih_l0 and bias_hh_l0 [4 hidden].
struct Lstm : Module {
  // Throws Error(kUser) for sizes below 1.
  Lstm(Module* parent, std::string name, int64_t in, int64_t hidden);
  // x [B, T, in] -> the hidden states of all positions, [B, T, hidden]. `state`: what the first position begins with,
  // and afterwards what the last one leaves; null: zeros.
  Tensor operator()(At x, RecurrentState* state = nullptr);

  // [4 hidden, in]: input, forget, cell and output gates.
  Parameter weight_ih;
  // [4 hidden, hidden]
  Parameter weight_hh;
  // [4 hidden]
  Parameter bias_ih;
  // [4 hidden]
  Parameter bias_hh;
};

// Gated recurrent unit (Cho et al. 2014), as torch.nn.GRU with one layer; parameters are named as an Lstm's, with
// 3 hidden rows.
struct Gru : Module {
  // Throws Error(kUser) for sizes below 1.
  Gru(Module* parent, std::string name, int64_t in, int64_t hidden);
  // x [B, T, in] -> the hidden states of all positions, [B, T, hidden]. `state` as of an Lstm.
  Tensor operator()(At x, RecurrentState* state = nullptr);

  // [3 hidden, in]: reset, update and new gates.
  Parameter weight_ih;
  // [3 hidden, hidden]
  Parameter weight_hh;
  // [3 hidden]
  Parameter bias_ih;
  // [3 hidden]
  Parameter bias_hh;
};
}  // namespace linnet
