#include "base/fail.h"
#include "base/numbers.h"
#include "base/text.h"
#include "data/examples/images/image_dataset.h"
#include "data/examples/text/record_reader.h"
#include "linnet/dataset.h"
#include "linnet/pretrained_tokenizer.h"

namespace linnet {
namespace {
Dataset of_images(const ImageDataset& images) {
  Dataset dataset;
  dataset.add_bytes(
      "images", {DType::kU8, {images.height, images.width, images.channels}}, std::as_bytes(std::span(images.pixels)));
  dataset.add("labels", Shape{}, images.labels);
  return dataset;
}
}  // namespace

Dataset Dataset::idx(const std::string& images, const std::string& labels) {
  return of_images(read_idx_images(images, labels));
}

Dataset Dataset::image_folder(const std::string& folder, int64_t size) {
  if (size < 0 || size > 1 << 16) fail_user("images cannot be ", size, " pixels wide");
  return of_images(read_image_folder(folder, {}, {.size = size}));
}

Dataset Dataset::chunks(const std::vector<int32_t>& ids, int64_t length) {
  const auto count = static_cast<int64_t>(ids.size());
  if (length < 1 || count < length + 1)
    fail_user(count, " tokens are too few for chunks of ", length, ", which need one more than that");
  const int64_t chunks = (count - 1) / length;
  const auto end = static_cast<size_t>(chunks * length);
  Dataset dataset;
  dataset.add_bytes("tokens", {DType::kI32, {length}}, std::as_bytes(std::span(ids).first(end)));
  dataset.add_bytes("targets", {DType::kI32, {length}}, std::as_bytes(std::span(ids).subspan(1, end)));
  return dataset;
}

Dataset Dataset::text(const std::string& path, const PretrainedTokenizer& tokenizer, int64_t length) {
  return chunks(tokenizer.encode(read_text(path)), length);
}

Dataset Dataset::tsv(const std::string& path, const PretrainedTokenizer& tokenizer, int64_t text_column,
    int64_t label_column, bool header, int64_t max_length) {
  if (text_column < 0 || label_column < 0 || max_length < 0)
    fail_user("columns are counted from 0, and max_length is not negative");
  LineReader reader(path);
  std::vector<std::vector<int32_t>> tokens;
  std::vector<int32_t> labels;
  for (std::string line; reader.next(line);) {
    if ((header && reader.line_number() == 1) || line.empty()) continue;
    const std::vector<std::string_view> columns = linnet::split(line, '\t');
    for (const auto& [name, column] : {std::pair("text_column", text_column), {"label_column", label_column}})
      if (column >= std::ssize(columns))
        fail_user(reader.where(), ": ", name, " = ", column, " is not there: the line has ", columns.size(),
            columns.size() == 1 ? " column" : " columns", ", counted from 0");
    const auto label = parse_number<int32_t>(columns[label_column]);
    if (!label) fail_user(reader.where(), ": the label \"", columns[label_column], "\" is not a whole number");
    labels.push_back(*label);
    tokens.push_back(tokenizer.encode(columns[text_column], {.max_length = max_length, .offsets = false}).ids);
  }
  if (labels.empty()) fail_user("'", path, "' has no labelled lines");
  Dataset dataset;
  dataset.add_sequences("tokens", std::move(tokens));
  dataset.add("labels", Shape{}, labels);
  return dataset;
}
}  // namespace linnet
