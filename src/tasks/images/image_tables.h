// Images of a table, each line of which has a file and its labels, instead of folders of classes.
#pragma once
#include "data/examples/images/image_folder.h"
#include "tasks/texts/text_task.h"

namespace linnet {

// What tasks on texts and images alike make of labels, metrics and answers; the texts of its records are files.
const TextTask& image_labels(const Config& config);

ImageLoading loading_of(const Config& config);

// The images of a table, labelled for a model with these outputs. User errors name the line.
ImageDataset load_image_table(const std::string& path, const Config& config, const Names& outputs);
// Those of data.train_tsv and of the tables for validation and the test; where neither is given, shares of the former.
ImageSplits load_table_splits(const Config& config);

// As measures take them.
TextExamples labels_of(const ImageDataset& images, LabelForm::Kind kind);

}  // namespace linnet
