// All tasks, and all configuration keys: meaning, choices or range, and owners.
#include <algorithm>
#include <array>
#include <utility>
#include "base/fail.h"
#include "base/functions.h"
#include "config/config.h"
#include "config/config_keys.h"
#include "config/text_tasks.h"

namespace linnet {
namespace {
template <auto Section, auto Member> FieldPointer field(Config& config) { return &(config.*Section.*Member); }
#define KEY(section, member) #section, #member, field < &Config::section, &decltype(Config::section)::member>

using Owners = std::vector<const char*>;
constexpr bool kResumable = true;
const KeyLimits kAny;

ConfigKey key(const char* section, const char* name, FieldPointer (*field)(Config&), Owners owners, KeyLimits limits,
    const char* meaning, bool may_change_on_resume = false) {
  return {std::move(limits), section, name, field, meaning, may_change_on_resume, std::move(owners)};
}

KeyLimits one_of(std::vector<std::string> choices) { return {.choices = std::move(choices)}; }
KeyLimits between(double least, double most) { return {.least = least, .most = most}; }
// The range [least, limit).
KeyLimits below(double least, double limit) { return {.least = least, .most = limit, .below_most = true}; }

const Owners kAll, kPairs{"transformer", "t5", "marian"}, kPlainTexts{"language", "masked_language"},
    kTokens{"transformer", "t5", "marian", "gpt", "llama", "bert"},
    kLayers{"transformer", "t5", "marian", "gpt", "llama", "bert", "vit"}, kTaught{"language", "classification"},
    kGenerated{"dates", "random"};

constexpr double kMaxSize = 1 << 30;             // of one axis of a tensor
constexpr double kMaxLayers = 1000;              // of either stack
constexpr double kMaxCount = 1e15;               // of steps, samples: exact in a double
constexpr double kMaxSeed = 9007199254740992.0;  // 2^53
constexpr double kMaxReal = 1e30;                // far from overflow in float

std::vector<std::string> task_names() { return mapped<std::string>(task_rows(), &TaskRow::name); }

const std::string& task_meaning() {
  static const std::string meaning = [] {
    std::string text = "What is learned:";
    for (const TaskRow& task : task_rows())
      text += (text.back() == ':' ? " \"" : ", \"") + std::string(task.name) + "\" " + task.description +
              (task.origin == ExampleOrigin::kDates       ? " of dates that the program makes"
                  : task.origin == ExampleOrigin::kRandom ? " of noise, to measure with"
                                                          : "");
    return text + ".";
  }();
  return meaning;
}

using enum TaskKind;
using enum ExampleOrigin;

constexpr auto names(const auto&... each) { return std::array<std::string_view, sizeof...(each)>{each...}; }

constexpr auto kPairModels = names("transformer", "t5", "marian");
constexpr auto kDecoders = names("gpt", "llama");
constexpr auto kEncoders = names("bert");
constexpr auto kImageModels = names("cnn", "resnet", "vit");

constexpr auto kPairMetrics = names("bleu", "chrf", "exact_match");
constexpr auto kPreferenceMetrics = names("accuracy", "margin", "chosen_reward", "rejected_reward");
constexpr auto kMaskedMetrics = names("masked_accuracy");
constexpr auto kImageClassMetrics = names("accuracy", "f1_macro", "f1_weighted");
constexpr std::span<const std::string_view> kNoMetrics;

#define LINNET_NAMES(name, description, metrics, heads) \
  constexpr auto name##_metrics = metrics;              \
  constexpr auto name##_heads = heads;
LINNET_TEXT_TASKS(LINNET_NAMES)

// TaskRow's members in order.
constexpr TaskRow row(const auto&... members) { return {members...}; }

constexpr auto kPairFile = &DataConfig::train_tsv, kTextFile = &DataConfig::text, kFolder = &DataConfig::data_dir;

#define LINNET_TEXT_ROW(name, description, metrics, heads) \
  row(#name, kTexts, kFiles, kPairFile, #name, "texts", description, "texts", kEncoders, name##_metrics, name##_heads),

constexpr std::array kRows{
    row("text", kTranslation, kFiles, kPairFile, "text", "text", "translation", "tokens", kPairModels, kPairMetrics),
    row("dates", kTranslation, kDates, kPairFile, "text", "dates", "translation", "tokens", kPairModels, kPairMetrics),
    row("random", kTranslation, kRandom, kPairFile, "text", "random", "translation", "tokens", kPairModels,
        kPairMetrics),
    row("language", kLanguage, kFiles, kTextFile, "language", "language", "language model", "tokens", kDecoders,
        kNoMetrics),
    row("chat", kLanguage, kFiles, kTextFile, "chat", "language", "conversations", "tokens", kDecoders, kNoMetrics),
    row("preferences", kLanguage, kFiles, kTextFile, "preferences", "language", "preferences", "pairs", kDecoders,
        kPreferenceMetrics),
    row("masked_language", kMaskedLanguage, kFiles, kTextFile, "masked_language", "masked_language",
        "masked language model", "tokens", kEncoders, kMaskedMetrics),
    row("images", kImages, kFiles, kFolder, "images", "images", "classification of images", "images", kImageModels,
        kImageClassMetrics),
    row("images_several_labels", kImages, kFiles, kFolder, "images_several_labels", "images",
        "several labels for each image", "images", kImageModels, several_labels_metrics),
    row("images_regression", kImages, kFiles, kFolder, "images_regression", "images", "numbers for each image",
        "images", kImageModels, regression_metrics),
    LINNET_TEXT_TASKS(LINNET_TEXT_ROW)};
}  // namespace

std::span<const ConfigKey> config_keys() {
  static const std::vector<ConfigKey> keys = {
      key(KEY(model, architecture), kAll,
          one_of({"transformer", "cnn", "resnet", "vit", "gpt", "llama", "bert", "t5", "marian"}),
          "An encoder-decoder Transformer for translation (in the layout of T5 or Marian, too), a convolutional or "
          "residual network or a vision Transformer (vit) for task = \"images\", a decoder of GPT-2's or Llama's kind "
          "for task = \"language\", a BERT for task = \"masked_language\" and those on texts with labels."),
      key(KEY(model, from), {"transformer", "t5", "marian", "gpt", "llama", "bert", "images"}, kAny,
          "A model folder in the layout of Hugging Face to start from: its configuration takes the place of the keys "
          "below, its tokenizer that of the tokenizer keys. For task = \"images\" an ONNX file or the folder of an "
          "imported one or the .safetensors of a residual network (torchvision's, timm's, an export), in place of the "
          "architecture, or the model folder of a vit; for task = \"classification\" also an ONNX file with a "
          "tokenizer beside it."),
      key(KEY(model, d_model), kLayers, between(2, kMaxSize),
          "Width of the model: the features of a token. Even, and divisible by num_heads."),
      key(KEY(model, num_heads), kLayers, between(1, kMaxSize),
          "Attention heads; each has d_model / num_heads features."),
      key(KEY(model, num_encoder_layers), {"transformer", "t5", "marian", "bert", "vit"}, between(0, kMaxLayers),
          "Encoder layers. The key num_layers sets both stacks. 0, of a bert: its embeddings alone, of which a "
          "classifier of texts takes the mean."),
      key(KEY(model, num_decoder_layers), {"transformer", "t5", "marian", "gpt", "llama"}, between(0, kMaxLayers),
          "Decoder layers."),
      key(KEY(model, d_ff), kLayers, between(1, kMaxSize), "Width of the feed-forward layers."),
      key(KEY(model, max_seq_len), kTokens, between(4, kMaxSize),
          "Most tokens of a sentence, its begin and end included. Longer pairs are left out of training."),
      key(KEY(model, dropout), kLayers, below(0, 1), "Share of activations dropped in training."),
      key(KEY(model, norm), {"transformer", "marian"}, one_of({"post", "pre"}),
          "Layer norm after each sub-layer, as in the paper, or before it, which trains more easily."),
      key(KEY(model, final_norm), {"transformer", "marian"}, kAny,
          "One more layer norm at the end of each stack; advisable when norm is \"pre\"."),
      key(KEY(model, activation), {"transformer", "t5", "marian", "bert", "vit"}, one_of({"relu", "gelu"}),
          "Of the feed-forward layers."),
      key(KEY(model, share_embeddings), kPairs, kAny, "One embedding table for source and target. Needs joint_vocab."),
      key(KEY(model, tie_head), {"transformer", "t5", "marian", "llama"}, kAny,
          "The output layer uses the target embedding's weights; a gpt's always does."),
      key(KEY(model, filters), {"cnn"}, between(1, kMaxSize),
          "Of the convolutional network: channels of its convolution."),
      key(KEY(model, depth), {"resnet"}, between(8, 1202),
          "Of the residual network: 18, 34, 50, 101 or 152 as for large images; 20, 32, 44, 56 (6 n + 2) as for small "
          "ones."),
      key(KEY(model, patch_size), {"vit"}, between(1, 4096),
          "Of the vision Transformer: side of the squares in pixels that an image is cut into, each of which is a "
          "token. It divides the image's height and width."),

      key(KEY(data, task), kAll, one_of(task_names()), task_meaning().c_str()),
      key(KEY(data, data_dir), {"text", "images", "language", "masked_language", "texts"}, kAny,
          "Folder in front of the relative paths below; the folder of the images."),
      key(KEY(data, train_source), {"text"}, kAny, "Training text, one sentence a line, UTF-8, plain or gzip ..."),
      key(KEY(data, train_target), {"text"}, kAny, "... and its translation, line by line."),
      key(KEY(data, source_language), {"text"}, kAny,
          "Language of the source, for a model of many languages, as its tokenizer spells it: eng_Latn, en_XX, en; "
          "default: what the model folder says."),
      key(KEY(data, target_language), {"text"}, kAny, "Language of its translation."),
      key(KEY(data, valid_source), {"text"}, kAny, "Validation text, for choosing the best checkpoint."),
      key(KEY(data, valid_target), {"text"}, kAny, "Its translation."),
      key(KEY(data, test_source), {"text"}, kAny, "Test text, for `linnet eval` only."),
      key(KEY(data, test_target), {"text"}, kAny, "Its translation."),
      key(KEY(data, train_tsv), {"text", "texts", "images"}, kAny,
          "Instead of two files: one, with source, tab, target on each line. Of labelled texts: a table of tabs or "
          "commas (.csv), or JSON lines (.jsonl). Of images: such a table of files, which lie relative to it, and "
          "labels."),
      key(KEY(data, valid_tsv), {"text", "texts", "images"}, kAny, "The same for validation."),
      key(KEY(data, test_tsv), {"text", "texts", "images"}, kAny, "The same for the test."),
      key(KEY(data, text_column), {"texts", "text", "language", "masked_language", "chat", "images"}, kAny,
          "The field with the text; empty: the usual names, else the first. Of translations the source, of images the "
          "file, of conversations the prompt."),
      key(KEY(data, pair_column), {"texts"}, kAny, "The field with the second text of a pair; empty: the usual names."),
      key(KEY(data, label_column), {"texts", "text", "chat", "images"}, kAny,
          "The field with the label; empty: the usual names, else the last. Several labels or numbers may have a field "
          "each: \"toxic,insult\". Of translations the target, of conversations the completion."),
      key(KEY(data, text), kPlainTexts, kAny,
          "Of language models, masked ones too: the training text, a file of plain text, of JSON lines (.jsonl) each "
          "with a \"text\", or of token numbers (.bin)."),
      key(KEY(data, valid_text), kPlainTexts, kAny,
          "Validation text of the same kind. Without it, the end of the training text is taken, or conversations and "
          "pairs that the seed draws:"),
      key(KEY(data, valid_share), kPlainTexts, below(0, 0.95), "this share of it."),
      key(KEY(data, test_text), kPlainTexts, kAny, "Test text, for `linnet eval` only."),
      key(KEY(data, token_bytes), kPlainTexts, between(2, 4), "Bytes of a number in a .bin file: 2 or 4."),
      key(KEY(data, context), {"language", "masked_language", "texts"}, between(0, kMaxSize),
          "Tokens of a chunk of text; 0: the model's max_seq_len."),
      key(KEY(data, held_out), {"text", "images", "texts"}, below(0.0001, 0.5),
          "Share of the training examples set aside for validation when no validation examples are given; of folders "
          "of images without a test part as many again for the test. Never more than half."),
      key(KEY(data, held_out_pairs), {"text"}, between(0, kMaxCount),
          "So many training pairs instead; 0: `held_out` of them, 500 at most."),
      key(KEY(data, held_out_images), {"images"}, between(0, kMaxCount),
          "So many training images instead; 0: `held_out` of them."),
      key(KEY(data, image_size), {"images"}, between(0, 4096),
          "Pixels that either side of an image is resized to; 0: images are taken as they are, all of one size."),
      key(KEY(data, image_fit), {"images"}, one_of({"crop", "stretch"}),
          "How images become of that size: scaled and the middle kept, or both sides scaled by themselves."),
      key(KEY(data, image_memory), {"images"}, kAny,
          "The most memory that decoded images may take, such as 4GiB. Image files that need more are decoded anew for "
          "every batch. The bits are the same.",
          kResumable),
      key(KEY(data, image_threads), {"images"}, between(0, 4096),
          "Threads that decode and change images while a step is computed; 0: as many as `threads`. The bits are the "
          "same.",
          kResumable),
      key(KEY(data, augment_shift), {"images"}, between(0, 4096),
          "Training images are shifted by up to so many pixels in either direction."),
      key(KEY(data, augment_mirror), {"images"}, kAny, "Left and right are exchanged in every second training image."),
      key(KEY(data, augment_cutout), {"images"}, between(0, 4096),
          "Side of a square, somewhere in each training image, that is covered; 0: none."),
      key(KEY(data, augment_rotate), {"images"}, between(0, 180),
          "Training images are rotated about their center by up to so many degrees either way."),
      key(KEY(data, augment_crop), {"images"}, between(0, 1),
          "A part of at least this share of each training image, with sides of 3:4 to 4:3, is cut out and scaled to "
          "the whole, such as 0.35; 0: none."),
      key(KEY(data, augment_random), {"images"}, between(0, 14),
          "RandAugment: so many changes of each training image, drawn from fourteen; 0: none."),
      key(KEY(data, augment_strength), {"images"}, between(0, 30),
          "How strong the changes of augment_random are, of 30."),
      key(KEY(data, augment_cutmix), {"images"}, between(0, 1000),
          "CutMix: a rectangle of another image is pasted into each training image, by a share from Beta(a, a) with "
          "this a, which has both labels by area; 0: none. Where augment_mixup is set too, chance decides for each "
          "image."),
      key(KEY(data, augment_mixup), {"images"}, between(0, 1000),
          "Mixup: each training image is blended with another one, by a share from Beta(a, a) with this a, and has "
          "both labels by that share; 0: none."),
      key(KEY(data, train_samples), kGenerated, between(1, kMaxCount), "Examples of an epoch of a generated task."),
      key(KEY(data, valid_samples), kGenerated, between(1, kMaxCount), "Validation examples of a generated task."),
      key(KEY(data, test_samples), kGenerated, between(1, kMaxCount), "Test examples of a generated task."),
      key(KEY(data, tokenizer), {"transformer", "t5", "marian", "language"},
          one_of({"sentencepiece", "char", "word", "byte_bpe"}),
          "What a token is: a learned piece of a word, a character, a word; of a language model: byte_bpe, bytes "
          "joined to pieces as GPT-2 does, or char."),
      key(KEY(data, tokenizer_dir), {"language", "masked_language", "texts"}, kAny,
          "Instead of one that is learned of the training texts: a tokenizer that is there already: tokenizer.json, "
          "vocab.txt or the folder that holds it."),
      key(KEY(data, tokenizer_model), kPairs, one_of({"bpe", "unigram"}), "How SentencePiece finds its pieces."),
      key(KEY(data, character_coverage), kPairs, between(0.9, 1),
          "Share of characters SentencePiece keeps; 0.9995 for Chinese or Japanese."),
      key(KEY(data, vocab_size), kTokens, between(5, 10'000'000),
          "Tokens, 4 special ones included: exactly so many for SentencePiece, at most for others."),
      key(KEY(data, joint_vocab), kPairs, kAny, "One vocabulary for source and target."),
      key(KEY(data, batch_size), kAll, between(0, kMaxSize),
          "Most pairs in a batch, or 0 for as many as batch_tokens allows; the images or chunks in a batch."),
      key(KEY(data, batch_tokens), {"transformer", "t5", "marian", "language", "masked_language"}, between(0, kMaxSize),
          "Most tokens in a batch, padding included, on its longer side; 0: no such limit."),
      key(KEY(data, num_buckets), kPairs, between(1, 256),
          "Sizes that batches are padded to. More waste less padding but take longer to plan."),

      key(KEY(lora, rank), kTokens, between(0, 4096),
          "LoRA: the weights of model.from stay as they are, and beside each linear layer of `targets` a product of "
          "two matrices of this rank is trained, and a new head. 0: all weights are trained."),
      key(KEY(lora, alpha), kTokens, between(0, kMaxReal), "The adapters' product is multiplied by alpha / rank."),
      key(KEY(lora, targets), kTokens, kAny,
          "Linear layers to adapt, by the names that the model's files have, separated by commas (query,value), or "
          "all-linear, which empty stands for: all but the head."),
      key(KEY(lora, base_storage), kTokens, one_of({"fp32", "bf16", "int8", "int4"}),
          "How the matrices of model.from lie in memory: bf16 takes half of fp32, int8 (with a scale for 32 neighbors) "
          "little more than a quarter, int4 half of that, but for tables."),

      key(KEY(embeddings, loss), {"embeddings"}, one_of({"auto", "in_batch", "triplet", "cosent", "cosine"}),
          "in_batch: a text's partner against all other partners of the batch (InfoNCE), and against the third texts "
          "of triplets. triplet: the partner is nearer than the third text by `margin`. Of scored pairs, cosent: "
          "cosines are in the order of the scores; cosine: they are the scores (squared error). auto: in_batch, and "
          "cosent where there are scores."),
      key(KEY(embeddings, scale), {"embeddings"}, between(1e-3, kMaxReal),
          "in_batch and cosent multiply cosines by this."),
      key(KEY(embeddings, margin), {"embeddings"}, between(0, kMaxReal), "Of triplet, in Euclidean distance."),
      key(KEY(embeddings, dimensions), {"embeddings"}, kAny,
          "Matryoshka: the sum of the losses of so many first numbers of the embeddings, such as \"256,128,64\"; "
          "empty: the loss of all of them."),
      key(KEY(answers, stride), {"answers"}, between(0, kMaxSize),
          "Tokens that windows of a text share, where question and text are longer than `context`."),
      key(KEY(answers, longest), {"answers"}, between(1, kMaxSize), "Most tokens of an answer that is predicted."),
      key(KEY(answers, candidates), {"answers"}, between(1, 1000),
          "Candidates for an answer's begin and end in a window."),
      key(KEY(answers, threshold), {"answers"}, between(-kMaxReal, kMaxReal),
          "There is no answer where its score exceeds that of the best answer by more than this."),

      key(KEY(preferences, method), {"preferences"}, one_of({"dpo", "ipo", "orpo"}),
          "How preferences are learned. dpo (Rafailov et al. 2023) and ipo (Azar et al. 2023) compare the model with "
          "model.from, of which it begins; orpo (Hong et al. 2024) also learns the chosen answers and compares with "
          "nothing."),
      key(KEY(preferences, beta), {"preferences"}, between(0, kMaxReal),
          "How closely dpo and ipo keep to model.from: more is closer. Of orpo: how much the preference counts beside "
          "the chosen answer."),

      key(KEY(distillation, teacher), kTaught, kAny,
          "A model folder whose probabilities are learned beside the data: of a language model one with the same "
          "tokenizer, of a classifier also with the same classes. It stays as it is."),
      key(KEY(distillation, temperature), kTaught, between(0.01, 1000),
          "Logits of both models are divided by it before the teacher's probabilities are learned."),
      key(KEY(distillation, teacher_alpha), kTaught, between(0, 1),
          "Share of the loss that comes from the teacher, by temperature^2; the rest is that of the data."),

      key(KEY(train, optimizer), kAll, one_of(optimizer_names()),
          "How gradients become updates. adamw8bit keeps AdamW's moments in 8 bits; muon moves the matrices of layers "
          "along orthogonal directions and the rest by AdamW; adafactor keeps a row and a column of numbers for each "
          "matrix; lion keeps one moment where Adam keeps two, and wants about a third of its learning rate."),
      key(KEY(train, learning_rate), kAll, between(0, kMaxReal),
          "The highest, reached at the end of the warmup. 0, of tasks on texts with labels: 5e-5 from model.from, 1e-3 "
          "from nothing."),
      key(KEY(train, schedule), kAll, one_of({"constant", "linear", "cosine", "inverse_sqrt"}),
          "How the learning rate falls after the warmup; linear and cosine end with the training."),
      key(KEY(train, warmup_steps), kAll, between(0, kMaxCount),
          "Steps in which the learning rate rises from 0; at most a quarter of all."),
      key(KEY(train, final_learning_rate), kAll, between(0, kMaxReal), "Where linear and cosine end."),
      key(KEY(train, max_steps), kAll, between(1, kMaxCount), "Updates of the weights.", kResumable),
      key(KEY(train, max_epochs), kAll, between(0, kMaxCount),
          "Passes over the training data; 0: as many as max_steps takes.", kResumable),
      key(KEY(train, max_minutes), kAll, between(0, 1e9),
          "Training time with its evaluations, in minutes, over all resumes; 0: no limit. The learning rate falls by "
          "what ends first: max_steps, max_epochs or this time.",
          kResumable),
      key(KEY(train, beta1), kAll, below(0, 1), "Adam, Lion: decay of the mean of gradients; Muon: of its AdamW part."),
      key(KEY(train, beta2), kAll, below(0, 1),
          "Adam, Muon: decay of the mean of squared gradients; Lion: of the mean that is kept."),
      key(KEY(train, epsilon), kAll, between(0, kMaxReal), "Adam: added to the root of the mean of squares."),
      key(KEY(train, momentum), kAll, below(0, 1), "SGD: decay of the velocity; 0: none. (Muon's is 0.95.)"),
      key(KEY(train, weight_decay), kAll, between(0, kMaxReal),
          "Of matrices, not of biases and norms. Adam and SGD add it to the gradient; it is decoupled in the others."),
      key(KEY(train, clip_norm), kAll, between(0, kMaxReal), "Largest norm of all gradients together; 0: no clipping."),
      key(KEY(train, label_smoothing), {"transformer", "t5", "marian", "language", "masked_language", "images"},
          below(0, 1),
          "Share of the target probability spread over the vocabulary or the classes; of task = \"preferences\" with "
          "dpo: the share of pairs that are taken to be the wrong way round."),
      key(KEY(train, class_weights), {"classification", "several_labels", "token_classification", "images"}, kAny,
          "How much the training examples of a class count: \"balanced\", so that all classes count alike, however "
          "rare they are, or \"spam=5,ham=1\", where classes that are not named have 1. Of several labels: how much a "
          "label counts where it is there. Evaluations count all examples alike."),
      key(KEY(train, ema_decay), kAll, below(0, 1),
          "Of a moving average of the weights; less in the first steps: (1 + step) / (10 + step). 0: none. Each "
          "evaluation compares the average with the weights, and the better of the two is saved."),
      key(KEY(train, accumulate_steps), kAll, between(1, 1e6),
          "Batches whose gradients make one update. Embeddings that learn of a whole batch see them, and all "
          "micro-batches, as one batch."),
      key(KEY(train, micro_batches), kAll, between(0, 1e6),
          "Parts into which each batch is cut, with one update for all of them: less memory, and other dropout masks "
          "and rounding. 0: as few as fit into `memory`, once recomputation alone does not do."),
      key(KEY(train, data_shards), kAll, between(0, 1e6),
          "Parts into which a step's batches are cut; they are computed apart, and their gradients are added in an "
          "order that depends on this number alone. Every number of ranks that divides it trains to the same bits; 0: "
          "one for each rank."),
      key(KEY(train, zero), kAll, between(0, 2),
          "With several ranks, ZeRO's stage: 1 divides the optimizer's moments, and the update, between them; 2: the "
          "gradients too; 0: each rank has all of both. The bits are the same.",
          kResumable),
      key(KEY(train, parallel), kAll, kAny,
          "How several ranks share the work: \"tensor=2\" lets each two of them compute one model together, with a "
          "part of each layer, \"pipeline=2\" with some of its layers each, \"data=2,tensor=2\" two such pairs on "
          "different data; \"data=2,tensor=2,pipeline=2\" is all three. Further: \"pipeline=encoder-decoder\", "
          "\"pipeline=2,interleave=2\". Empty: every rank has the whole model and its own data.",
          kResumable),
      key(KEY(train, seed), kAll, between(0, kMaxSeed), "Of weights, dropout, shuffling and generated data."),
      key(KEY(train, eval_every), kAll, between(1, kMaxCount), "Steps between evaluations."),
      key(KEY(train, eval_pairs), kPairs, between(0, kMaxCount), "Validation pairs translated in each; 0: all."),
      key(KEY(train, eval_beam), kPairs, between(1, 1024), "Beam of these translations; 1 is greedy and fastest."),
      key(KEY(train, sample_length), {"language"}, between(0, 1e6),
          "Of a language model: tokens of the sample that an evaluation writes."),
      key(KEY(train, patience), kAll, between(0, kMaxCount),
          "Stop after so many evaluations without a better one; 0: never.", kResumable),
      key(KEY(train, metric), kAll, kAny, "What makes a checkpoint the best: the loss, or a metric of the task."),
      key(KEY(train, beam), kPairs, between(1, 1024), "Beam of `linnet eval` and `linnet translate`.", kResumable),
      key(KEY(train, length_penalty), kPairs, between(0, 10),
          "Beam search ranks by log probability / length ^ length_penalty.", kResumable),
      key(KEY(train, save_every), kAll, between(1, kMaxCount), "Steps between checkpoints.", kResumable),
      key(KEY(train, keep_checkpoints), kAll, between(0, 1e6),
          "Weights of the last so many checkpoints that are kept, for `linnet average`; 0: none.", kResumable),
      key(KEY(train, keep_every), kAll, between(0, kMaxCount),
          "Every so many steps the run is saved and its weights are kept for good; 0: never.", kResumable),
      key(KEY(train, log_every), kAll, between(1, kMaxCount), "Steps between lines of metrics.jsonl.", kResumable),
      key(KEY(train, tensorboard), kAll, kAny,
          "Also write event files for TensorBoard into the run folder: scalars, and with every evaluation histograms "
          "and samples.",
          kResumable),
      key(KEY(train, threads), kAll, between(0, 4096), "0: what the machine and its cgroup allow.", kResumable),
      key(KEY(train, device), kAll, kAny,
          "Where training runs: cpu, cuda or cuda:N (needs the CUDA module, docs/gpu.md).", kResumable),
      key(KEY(train, precision), kAll, one_of({"fp32", "tf32", "bf16", "fp16", "int8"}),
          "In what products multiply: bf16 is about twice as fast where the CPU has it, and fp32 elsewhere. Sums, "
          "weights and everything else are fp32. On a GPU bf16 stores activations in bf16 too; tf32 is a GPU's. fp16 "
          "is the CPU's: operands are rounded to fp16, for its range, not for speed. int8 is the CPU's: products of "
          "linear layers and of their inputs' gradients multiply 8-bit numbers; all else is as with bf16."),
      key(KEY(train, loss_scale), kAll, between(1, 1 << 24),
          "With precision = \"fp16\": the loss is multiplied by this, a power of two, before the backward pass, so "
          "that gradients are not rounded to zero; where they overflow the step is skipped and the scale halved."),
      key(KEY(train, loss_scale_steps), kAll, between(1, kMaxCount),
          "The loss scale doubles after so many steps without an overflow."),
      key(KEY(train, attention_precision), kLayers, one_of({"same", "bf16"}),
          "same, or bf16: attention alone multiplies in bf16 and all else in `precision`. On a GPU that is cuDNN's "
          "attention on fp32 activations."),
      key(KEY(train, quantize), kAll, one_of({"none", "int8"}),
          "int8: linear layers compute with inputs and weights rounded to 8 bits, by steps that are trained, so that "
          "the model loses little when it runs in static int8, as it then does. On the CPU."),
      key(KEY(train, storage), kAll, one_of({"auto", "fp32"}),
          "In what type activations are stored. auto: with precision = \"bf16\" or \"int8\" in bf16, where the machine "
          "multiplies in bf16; else in fp32. fp32: always."),
      key(KEY(train, recompute), kAll, one_of({"auto", "none", "attention", "block"}),
          "What of each layer the backward pass computes again instead of keeping it in memory: nothing, its "
          "attention, or all of it. auto: as much as `memory` asks for. Results are the same bits.",
          kResumable),
      key(KEY(train, memory), kAll, kAny,
          "The most memory the program may take while it trains, such as 2GiB or 500MB; on a GPU, of the GPU's memory. "
          "Empty: what the machine has.",
          kResumable),
      key(KEY(train, isa), kAll, kAny,
          "Instruction set of the kernels; `linnet info` lists them. Another one rounds differently."),
      key(KEY(train, freeze), kAll, kAny,
          "Parameters that stay as they are: patterns of their names, separated by commas; '*' stands for any "
          "characters. [[train.groups]] says more of some parameters."),
  };
  return keys;
}
#undef KEY

std::span<const TaskRow> task_rows() { return kRows; }

const TaskRow& task_row(const Config& config) {
  const auto found = std::ranges::find(kRows, config.data.task, &TaskRow::name);
  if (found == kRows.end()) fail_internal("no task is called \"", config.data.task, "\"");
  return *found;
}
}  // namespace linnet
