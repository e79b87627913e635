// What linnet_runtime has in place of parts of the full library. Each function here is defined in a file of its own
// there; the linker takes the one that it sees first, and with it leaves out what the other would bring.
#include "base/error.h"
#include "base/files.h"
#include "data/text/bpe/bpe_model.h"
#include "data/text/sentencepiece/unigram_model.h"
#include "data/text/wordpiece/wordpiece_model.h"
#include "engine/kernels/attention/attention_blocking.h"
#include "engine/kernels/attention/attention_few_queries.h"
#include "engine/kernels/gemm/gemm_bf16.h"
#include "engine/ops/matmul/dense_head.h"
#include "engine/ops/op_table.h"
#include "engine/passes/passes.h"
#include "models/families/family.h"
#include "tasks/texts/text_classifier.h"
#include "training/run/pretrained_run.h"

namespace linnet {

// engine/ops/all_ops.cpp: neither gradients nor images.
std::span<const OpEntry> all_ops() { return inference_ops(); }

// engine/kernels/attention/attention_bf16_simd.cpp, attention_few_queries_bf16_simd.cpp: activations are fp32.
AttendHeads bf16_attend_heads() { fail_internal("this library has no keys and values in bf16"); }
attention_blocking::ForwardTask attention_blocking::bf16_forward_task() { return nullptr; }
attention_blocking::BackwardTask attention_blocking::bf16_backward_task() { return nullptr; }

// engine/kernels/gemm/gemm_bf16_simd.cpp: so are products.
bool gemm_has_bf16() { return false; }
bool gemm_bf16(const GemmArgs&, const float*, float*, ThreadPool&) { return false; }
bool pack_bf16_panels(const GemmArgs&, float*, ThreadPool&) { return false; }

// models/families/families.cpp: no images.
const FamilyList& families() { return families_of_texts(); }

// engine/ops/matmul/dense_head_gradient_cpu.cpp
void run_dense_head_gradient(const DenseHeadShape&, bool, const KernelArgs&) {
  fail_internal("this library computes no gradients");
}

// tasks/texts/classification_run.cpp: no import of ONNX files.
PretrainedModel open_classification_run(const std::string& folder) {
  if (file_exists(folder + "/network.onnx"))
    fail_user("'" + folder + "' is the network of an ONNX file, which this library does not run");
  return open_run_model(folder);
}

// Passes that find something in training graphs alone: a copy of the graph is all that is left to do. And those of
// other precisions than fp32.
Graph fuse_loss(const Graph& graph) { return remove_dead_code(graph); }
Graph fuse_batch_norm(const Graph& graph, const Backend&) { return remove_dead_code(graph); }
Graph fuse_bias_gradient(const Graph& graph, const Backend&) { return remove_dead_code(graph); }
Graph fuse_embedding_scale(const Graph& graph, const Backend&) { return remove_dead_code(graph); }
Graph fuse_pool_gradient(const Graph& graph, const Backend&) { return remove_dead_code(graph); }
Graph recompute(const Graph& graph, const Backend&) { return remove_dead_code(graph); }
Graph recompute_blocks(const Graph& graph, std::span<const BlockChoice>) { return remove_dead_code(graph); }
Graph round_shared(const Graph& graph) { return remove_dead_code(graph); }
// engine/passes/fuse_convolution.cpp, pack_filters.cpp: no convolutions.
Graph fuse_int8_convolution(const Graph& graph) { return remove_dead_code(graph); }
Graph fuse_convolution(const Graph& graph, const Backend&) { return remove_dead_code(graph); }
std::vector<PackedFilters> packable_filters(std::span<const Graph>, const Backend&) { return {}; }
Graph pack_filters(const Graph& graph, std::span<const PackedFilters>) { return remove_dead_code(graph); }
void pack(const PackedFilters&, const float*, float*, ThreadPool&) {}
// engine/passes/fusion_report.cpp: nobody asks what passes did.
std::vector<std::string> new_nodes(const Graph&, const Graph&) { return {}; }

namespace {

[[noreturn]] void fail_precision() { fail_user("this library computes in fp32, with weights of any --quantize"); }
[[noreturn]] void fail_writing() { fail_internal("this library writes no tokenizers"); }

}  // namespace

Graph lower_precision(const Graph&, Precision, Precision) { fail_precision(); }
Graph cast_to_storage_type(const Graph&, DType, const Backend&) { fail_precision(); }

// data/text/*/*_model_writer.cpp
std::string BpeModel::to_json() const { fail_writing(); }
std::string BpeModel::settings_json() const { fail_writing(); }
void BpeModel::add_tables(TokenizerTableWriter&) const { fail_writing(); }
std::string UnigramModel::to_json() const { fail_writing(); }
std::string UnigramModel::settings_json() const { fail_writing(); }
void UnigramModel::add_tables(TokenizerTableWriter&) const { fail_writing(); }
std::string WordPieceModel::to_json() const { fail_writing(); }
std::string WordPieceModel::settings_json() const { fail_writing(); }

}  // namespace linnet
