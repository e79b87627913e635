#include "config/presets.h"

#include "config/config.h"

namespace linnet {
namespace {

constexpr PresetText kPresets[] = {
    {"bert-base",
     "BERT's masked language model: data.text=FILE, with data.tokenizer_dir=VOCAB.TXT or model.from=FOLDER.",
     R"(
[model]
architecture = "bert"
d_model = 768
num_heads = 12
num_layers = 12
d_ff = 3072
max_seq_len = 512
dropout = 0.1
activation = "gelu"

[data]
task = "masked_language"
vocab_size = 30522
batch_size = 8
batch_tokens = 0

[train]
optimizer = "adamw"
learning_rate = 1e-4
schedule = "linear"
warmup_steps = 1000
max_steps = 100000
beta2 = 0.999
epsilon = 1e-6
weight_decay = 0.01
clip_norm = 1.0
precision = "bf16"
eval_every = 1000
save_every = 1000
metric = "loss"
)"},
    {"classify", "Texts of your own with labels, from a BERT folder: --data FILE.tsv --set model.from=FOLDER.", R"(
[model]
architecture = "bert"
from = "models/bert"
d_model = 384
num_heads = 12
num_layers = 6
d_ff = 1536
max_seq_len = 512
activation = "gelu"

[data]
task = "classification"
vocab_size = 30522
context = 128
held_out = 0.1
batch_size = 16
batch_tokens = 0

[train]
optimizer = "adamw"
learning_rate = 5e-5
schedule = "linear"
warmup_steps = 50
max_steps = 2000
beta2 = 0.999
epsilon = 1e-8
weight_decay = 0.01
clip_norm = 1.0
eval_every = 100
save_every = 100
patience = 5
metric = "accuracy"
)"},
    {"dates", "Learns in about a minute to rewrite dates of four languages as 2019-03-07; makes its own data.", R"(
[model]
d_model = 64
num_heads = 4
num_layers = 2
d_ff = 256
max_seq_len = 48
dropout = 0.0
norm = "pre"
final_norm = true

[data]
task = "dates"
train_samples = 100000
tokenizer = "char"
vocab_size = 256
joint_vocab = false
batch_size = 64
batch_tokens = 0
num_buckets = 3

[train]
learning_rate = 3e-3
schedule = "linear"
warmup_steps = 200
max_steps = 2400
eval_every = 600
save_every = 600
metric = "exact_match"
beam = 1
)"},
    {"gpt2-124m", "GPT-2's smallest model on a text of your own: data.text=FILE [data.tokenizer_dir=FOLDER].", R"(
[model]
architecture = "gpt"
d_model = 768
num_heads = 12
num_layers = 12
d_ff = 3072
max_seq_len = 1024
dropout = 0.0

[data]
task = "language"
tokenizer = "byte_bpe"
vocab_size = 50257
batch_size = 2
batch_tokens = 0

[train]
optimizer = "adamw"
learning_rate = 6e-4
schedule = "cosine"
final_learning_rate = 6e-5
warmup_steps = 700
max_steps = 20000
beta2 = 0.95
epsilon = 1e-8
weight_decay = 0.1
clip_norm = 1.0
accumulate_steps = 8
eval_every = 500
save_every = 500
sample_length = 100
metric = "loss"
)"},
    {"images", "Pictures of your own, a folder for each class: --data FOLDER.", R"(
[model]
architecture = "cnn"
filters = 32

[data]
task = "images"
image_size = 64
image_fit = "crop"
held_out = 0.1
batch_size = 32

[train]
learning_rate = 1e-3
schedule = "linear"
beta2 = 0.999
epsilon = 1e-8
clip_norm = 1.0
max_steps = 2000
eval_every = 100
save_every = 100
patience = 5
metric = "accuracy"
)"},
    {"mini-gpt", "A small GPT on a text of your own: data.text=FILE [data.tokenizer_dir=FOLDER].", R"(
[model]
architecture = "gpt"
d_model = 512
num_heads = 8
num_layers = 6
d_ff = 2048
max_seq_len = 512
dropout = 0.1

[data]
task = "language"
tokenizer = "byte_bpe"
vocab_size = 50257
batch_size = 8
batch_tokens = 0

[train]
optimizer = "adamw"
learning_rate = 1e-3
schedule = "cosine"
final_learning_rate = 1e-4
warmup_steps = 200
max_steps = 10000
beta2 = 0.95
epsilon = 1e-8
weight_decay = 0.1
clip_norm = 1.0
precision = "bf16"
eval_every = 500
save_every = 500
sample_length = 100
metric = "loss"
)"},
    {"mnist", "A small convolutional network for images of digits; expects MNIST's files in data_dir.", R"(
[model]
architecture = "cnn"
filters = 16

[data]
task = "images"
data_dir = "data/mnist"
held_out_images = 5000
batch_size = 128

[train]
learning_rate = 3e-3
schedule = "linear"
beta2 = 0.999
epsilon = 1e-8
clip_norm = 0.0
max_steps = 4300
eval_every = 430
save_every = 430
metric = "accuracy"
)"},
    {"multi30k", "English to German image captions (Multi30k); expects its files in data_dir.", R"(
[model]
d_model = 256
num_heads = 4
num_layers = 3
d_ff = 512
max_seq_len = 128
dropout = 0.2
norm = "pre"
final_norm = true
share_embeddings = true
tie_head = true

[data]
data_dir = "data/multi30k"
train_source = "train.en.gz"
train_target = "train.de.gz"
valid_source = "val.en.gz"
valid_target = "val.de.gz"
test_source = "test_2016_flickr.en.gz"
test_target = "test_2016_flickr.de.gz"
tokenizer = "sentencepiece"
tokenizer_model = "bpe"
vocab_size = 6000
joint_vocab = true
batch_tokens = 2048
num_buckets = 16

[train]
learning_rate = 2e-3
schedule = "cosine"
final_learning_rate = 1e-5
warmup_steps = 400
max_steps = 3900
label_smoothing = 0.1
ema_decay = 0.995
eval_every = 500
save_every = 500
metric = "bleu"
beam = 5
)"},
    {"reference", "The reference shape for measurements: post-LN, d 256, 2 + 2 layers, batch 16, random data.", R"(
[model]
d_model = 256
num_heads = 8
num_layers = 2
d_ff = 1024
max_seq_len = 256
dropout = 0.1
norm = "post"

[data]
task = "random"
tokenizer = "char"
train_samples = 1024
valid_samples = 16
test_samples = 16
vocab_size = 256
joint_vocab = false
batch_size = 16
batch_tokens = 0
num_buckets = 1

[train]
learning_rate = 1e-4
beta2 = 0.999
epsilon = 1e-8
clip_norm = 0.0
max_steps = 64
metric = "loss"
)"},
    {"resnet20", "A residual network of 20 layers for small images, a folder for each class: --data FOLDER.", R"(
[model]
architecture = "resnet"
depth = 20

[data]
task = "images"
held_out = 0.1
batch_size = 64
augment_shift = 4
augment_mirror = true
augment_cutout = 8

[train]
optimizer = "sgd"
learning_rate = 0.1
schedule = "cosine"
warmup_steps = 200
momentum = 0.9
weight_decay = 5e-4
label_smoothing = 0.1
clip_norm = 0.0
max_steps = 5000
eval_every = 250
save_every = 250
metric = "accuracy"
)"},
    {"shakespeare", "Learns to write verse, character by character; data.dir=FOLDER with input.txt, or data.text=FILE.",
     R"(
[model]
architecture = "llama"
d_model = 256
num_heads = 4
num_layers = 4
d_ff = 704
max_seq_len = 256
dropout = 0.0
tie_head = true

[data]
task = "language"
text = "input.txt"
valid_share = 0.1
tokenizer = "char"
vocab_size = 1000
batch_size = 8
batch_tokens = 0

[train]
optimizer = "adamw"
learning_rate = 2e-3
schedule = "cosine"
final_learning_rate = 2e-5
warmup_steps = 100
max_steps = 3000
beta2 = 0.99
epsilon = 1e-8
weight_decay = 0.1
clip_norm = 1.0
precision = "bf16"
eval_every = 1000
save_every = 1000
sample_length = 400
metric = "loss"
)"},
    {"sst2", "Tells good reviews from bad (SST-2), from a BERT folder: model.from=FOLDER data.dir=FOLDER.", R"(
[model]
architecture = "bert"
from = "models/minilm"
d_model = 384
num_heads = 12
num_layers = 6
d_ff = 1536
max_seq_len = 512
activation = "gelu"

[data]
task = "classification"
data_dir = "data/sst2"
train_tsv = "train.tsv"
valid_tsv = "dev.tsv"
test_tsv = "test.tsv"
vocab_size = 30522
context = 64
batch_size = 32
batch_tokens = 0

[train]
optimizer = "adamw"
learning_rate = 1e-4
schedule = "linear"
warmup_steps = 65
max_steps = 651
beta2 = 0.999
epsilon = 1e-8
weight_decay = 0.01
clip_norm = 1.0
eval_every = 217
save_every = 217
metric = "accuracy"
)"},
    {"t5-small", "T5's smallest model, on --source and --target; from a folder with model.from=FOLDER.", R"(
[model]
architecture = "t5"
d_model = 512
num_heads = 8
num_layers = 6
d_ff = 2048
max_seq_len = 512
dropout = 0.1
share_embeddings = true
tie_head = true

[data]
tokenizer = "sentencepiece"
tokenizer_model = "unigram"
vocab_size = 32000
joint_vocab = true
batch_tokens = 2048

[train]
optimizer = "adamw"
learning_rate = 1e-3
schedule = "inverse_sqrt"
warmup_steps = 1000
max_steps = 20000
beta2 = 0.999
epsilon = 1e-8
weight_decay = 0.01
clip_norm = 1.0
precision = "bf16"
eval_every = 1000
eval_pairs = 500
save_every = 1000
metric = "bleu"
)"},
    {"text", "A language model on a text of your own: --data FILE.", R"(
[model]
architecture = "llama"
d_model = 256
num_heads = 4
num_layers = 4
d_ff = 704
max_seq_len = 256
dropout = 0.1
tie_head = true

[data]
task = "language"
tokenizer = "byte_bpe"
vocab_size = 4000
batch_size = 16
batch_tokens = 0

[train]
optimizer = "adamw"
learning_rate = 2e-3
schedule = "inverse_sqrt"
warmup_steps = 200
max_steps = 10000
beta2 = 0.99
epsilon = 1e-8
weight_decay = 0.1
clip_norm = 1.0
precision = "bf16"
eval_every = 250
save_every = 250
patience = 4
sample_length = 60
metric = "loss"
)"},
    {"translate", "A start for your own parallel text: --data FILE.tsv, or --source and --target.", R"(
[model]
d_model = 256
num_heads = 4
num_layers = 3
d_ff = 1024
max_seq_len = 256
dropout = 0.1
norm = "pre"
final_norm = true
share_embeddings = true
tie_head = true

[data]
tokenizer = "sentencepiece"
vocab_size = 8000
joint_vocab = true
batch_tokens = 4096

[train]
learning_rate = 1e-3
schedule = "inverse_sqrt"
warmup_steps = 1000
max_steps = 20000
label_smoothing = 0.1
ema_decay = 0.999
eval_every = 1000
eval_pairs = 500
save_every = 1000
patience = 10
metric = "bleu"
)"},
    {"vit-tiny", "A vision Transformer (ViT-Ti) for small images, a folder for each class: --data FOLDER.", R"(
[model]
architecture = "vit"
d_model = 192
num_heads = 3
num_layers = 12
d_ff = 768
dropout = 0.0
activation = "gelu"
patch_size = 4

[data]
task = "images"
image_size = 32
held_out = 0.1
batch_size = 64
augment_shift = 4
augment_mirror = true
augment_mixup = 0.2

[train]
optimizer = "adamw"
learning_rate = 1e-3
schedule = "cosine"
final_learning_rate = 1e-5
warmup_steps = 300
beta2 = 0.999
epsilon = 1e-8
weight_decay = 0.05
label_smoothing = 0.1
clip_norm = 1.0
max_steps = 5000
eval_every = 250
save_every = 250
metric = "accuracy"
)"},
};

}  // namespace

std::span<const PresetText> preset_texts() { return kPresets; }

const PresetText* find_preset(std::string_view name) {
  for (const PresetText& preset : kPresets)
    if (name == preset.name) return &preset;
  return nullptr;
}

bool is_preset(const std::string& name) { return find_preset(name) != nullptr; }

std::vector<Preset> presets() {
  std::vector<Preset> result;
  for (const PresetText& preset : kPresets) result.push_back({preset.name, preset.description});
  return result;
}

}  // namespace linnet
