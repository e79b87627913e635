// Images listed in a table with their labels, instead of class folders.
#pragma once
#include "data/examples/images/image_folder.h"
#include "tasks/texts/text_task.h"

namespace linnet {
// Labels, metrics and answers shared with tasks on texts; the records' texts are image files.
const TextTask& image_labels(const Config& config);

ImageLoading loading_of(const Config& config);

// Images of a table, labeled for a model with these outputs. User errors name the line.
ImageDataset load_image_table(const std::string& path, const Config& config, const Names& outputs);
// Images of data.train_tsv and the validation and test tables, or shares of the former if neither is given.
ImageSplits load_table_splits(const Config& config);

TextExamples labels_of(const ImageDataset& images, LabelForm::Kind kind);
}  // namespace linnet
