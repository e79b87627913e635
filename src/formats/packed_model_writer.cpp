#include <algorithm>
#include "formats/packed_checksum.h"
#include "formats/packed_model.h"
#include "formats/safetensors_format.h"

namespace linnet {

void save_packed_model(const std::string& path, const PackedContents& contents) {
  std::vector<WeightSource> all = contents.weights;
  // Behind the weights, which end a page, tables lie at multiples of the 16 bytes that they need: their sizes are such.
  std::vector<std::pair<std::string_view, const std::string*>> files;
  for (const auto& [name, text] : contents.files) files.emplace_back(name, &text);
  std::stable_partition(files.begin(), files.end(),
                        [](const auto& file) { return file.first.ends_with(kTokenizerTables); });
  for (const auto& [name, text] : files)
    all.push_back({kPackedFilePrefix + std::string(name), FileDType::kU8, Shape{static_cast<int64_t>(text->size())},
                   [text = text](int64_t first, int64_t count, std::byte* out) {
                     std::copy_n(reinterpret_cast<const std::byte*>(text->data()) + first, count, out);
                   }});
  SafetensorsMetadata metadata = contents.metadata;
  metadata.erase(kSafetensorsChecksumKey);
  metadata[kPackedVersionKey] = std::to_string(kPackedVersion);
  std::vector<const WeightSource*> by_name;
  for (const WeightSource& weight : all) by_name.push_back(&weight);
  std::ranges::sort(by_name, {}, &WeightSource::name);
  std::string& sums = metadata[kPackedSumsKey];
  sums.clear();
  std::vector<std::byte> bytes;
  for (const WeightSource* weight : by_name) sums += checksum_text(data_sum(*weight, bytes));
  uint64_t state = metadata_checksum(metadata, kPackedVersion);
  for (const WeightSource* weight : by_name) state = add_head(state, weight->name, weight->dtype, weight->shape);
  metadata[kPackedChecksumKey] = checksum_text(state);
  save_weight_file(path, all, metadata, WeightOrder::kGivenInPages);
}

}  // namespace linnet
