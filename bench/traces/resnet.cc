// Models ResNet-50 and Mask R-CNN with a ResNet-50 backbone. The tensors have the names of torchvision.
#include <array>
#include <utility>

#include "bench/traces/model.h"

namespace sluice::bench {
namespace {

struct Image {
  uint64_t height;
  uint64_t width;

  [[nodiscard]] uint64_t pixels() const { return height * width; }
  [[nodiscard]] Image halved() const { return {(height + 1) / 2, (width + 1) / 2}; }
};

constexpr uint64_t kExpansion = 4;  // output width of a block divided by its inner width
constexpr std::array<uint64_t, 4> kBlocks = {3, 4, 6, 3};
constexpr std::array<uint64_t, 4> kInner = {64, 128, 256, 512};

// The body of He et al., "Deep Residual Learning for Image Recognition" (2015), table 1, 50 layers. As in
// torchvision, the 3x3 convolution of the first block of a stage halves the image; the code of the paper used
// the 1x1 convolution.
class Resnet50Body {
 public:
  // `batch_norm`: normalizations have a trainable scale and shift; otherwise they are constants.
  Resnet50Body(std::string prefix, Image image, bool batch_norm)
      : prefix_(std::move(prefix)), batch_norm_(batch_norm), image_(image.halved()) {
    add("conv1", "bn1", {.in = 3, .out = 64, .kernel = 7, .positions = image_.pixels()});
    image_ = image_.halved();  // max pooling
    uint64_t width = 64;
    for (size_t stage = 0; stage < kBlocks.size(); ++stage) {
      for (uint64_t block = 0; block < kBlocks[stage]; ++block)
        width =
            add_block("layer" + std::to_string(stage + 1) + "." + std::to_string(block), width, stage, block);
      stages_[stage] = image_;
    }
  }

  std::vector<Layer> layers;

  // Returns the output size of stage 0 to 3.
  [[nodiscard]] Image stage(size_t i) const { return stages_[i]; }

 private:
  uint64_t add_block(const std::string& name, uint64_t width, size_t stage, uint64_t block) {
    const uint64_t inner = kInner[stage];
    const uint64_t out = kExpansion * inner;
    const uint64_t before = image_.pixels();
    if (stage > 0 && block == 0) image_ = image_.halved();
    const uint64_t after = image_.pixels();
    add(name + ".conv1", name + ".bn1", {.in = width, .out = inner, .kernel = 1, .positions = before});
    add(name + ".conv2", name + ".bn2", {.in = inner, .out = inner, .kernel = 3, .positions = after});
    add(name + ".conv3", name + ".bn3", {.in = inner, .out = out, .kernel = 1, .positions = after});
    if (block == 0) {
      add(name + ".downsample.0", name + ".downsample.1",
          {.in = width, .out = out, .kernel = 1, .positions = after});
    }
    return out;
  }

  void add(const std::string& name, const std::string& norm, const Convolution& shape) {
    layers.push_back(convolution(prefix_ + name, shape));
    if (batch_norm_) layers.push_back(normalization(prefix_ + norm, shape.out));
  }

  std::string prefix_;
  bool batch_norm_;
  Image image_;
  std::array<Image, 4> stages_{};
};

// Adds the pyramid of Lin et al., "Feature Pyramid Networks for Object Detection" (2016), from the smallest
// map to the largest.
void add_pyramid(std::vector<Layer>& layers, const Resnet50Body& body, uint64_t width) {
  for (size_t i = kBlocks.size(); i-- > 0;) {
    const std::string number = std::to_string(i);
    const uint64_t pixels = body.stage(i).pixels();
    layers.push_back(convolution(
        "backbone.fpn.inner_blocks." + number + ".0",
        {.in = kExpansion * kInner[i], .out = width, .kernel = 1, .positions = pixels, .bias = true}));
    layers.push_back(
        convolution("backbone.fpn.layer_blocks." + number + ".0",
                    {.in = width, .out = width, .kernel = 3, .positions = pixels, .bias = true}));
  }
}

}  // namespace

Model resnet50() {
  constexpr uint64_t kClasses = 1000;
  Resnet50Body body("", {224, 224}, true);
  body.layers.push_back(linear("fc", {.in = kExpansion * kInner.back(), .out = kClasses, .rows = 1}));
  return {.name = "resnet-50",
          .source = "He et al. 2015 (arXiv 1512.03385); torchvision resnet50",
          .sample = "image of 224 x 224",
          .heads = "classifier of 1000 classes",
          .batch = 256,
          .layers = std::move(body.layers)};
}

// He et al., "Mask R-CNN" (2017), with the defaults of torchvision's maskrcnn_resnet50_fpn and a pretrained
// backbone: batch normalization is constant, and the stem and the first stage are frozen.
Model mask_rcnn_r50_fpn() {
  constexpr uint64_t kWidth = 256;    // of the pyramid and of the mask head
  constexpr uint64_t kClasses = 91;   // of COCO, including the background
  constexpr uint64_t kAnchors = 3;    // per position
  constexpr uint64_t kBoxes = 512;    // per image for the training of the box head
  constexpr uint64_t kMasks = 128;    // the same for the mask head: a quarter of the boxes contain an object
  constexpr uint64_t kBoxSide = 7;    // of the regions of the box head
  constexpr uint64_t kMaskSide = 14;  // of the regions of the mask head
  constexpr uint64_t kHidden = 1024;

  Resnet50Body body("backbone.body.", {800, 1344}, false);
  std::vector<Layer> layers = std::move(body.layers);
  for (Layer& layer : layers) {
    layer.frozen = layer.name == "backbone.body.conv1" || layer.name.starts_with("backbone.body.layer1.");
  }
  add_pyramid(layers, body, kWidth);

  uint64_t pyramid = body.stage(3).halved().pixels();  // the fifth map, the result of pooling
  for (size_t i = 0; i < kBlocks.size(); ++i) pyramid += body.stage(i).pixels();
  const auto per_pixel = [&layers](const std::string& name, uint64_t out, uint64_t kernel,
                                   uint64_t positions) {
    layers.push_back(convolution(
        name, {.in = kWidth, .out = out, .kernel = kernel, .positions = positions, .bias = true}));
  };
  per_pixel("rpn.head.conv.0.0", kWidth, 3, pyramid);
  per_pixel("rpn.head.cls_logits", kAnchors, 1, pyramid);
  per_pixel("rpn.head.bbox_pred", 4 * kAnchors, 1, pyramid);

  const std::string roi = "roi_heads.";
  layers.push_back(
      linear(roi + "box_head.fc6", {.in = kWidth * kBoxSide * kBoxSide, .out = kHidden, .rows = kBoxes}));
  layers.push_back(linear(roi + "box_head.fc7", {.in = kHidden, .out = kHidden, .rows = kBoxes}));
  layers.push_back(linear(roi + "box_predictor.cls_score", {.in = kHidden, .out = kClasses, .rows = kBoxes}));
  layers.push_back(
      linear(roi + "box_predictor.bbox_pred", {.in = kHidden, .out = 4 * kClasses, .rows = kBoxes}));

  constexpr uint64_t kMaskPixels = kMasks * kMaskSide * kMaskSide;
  for (int i = 0; i < 4; ++i)
    per_pixel(roi + "mask_head." + std::to_string(i) + ".0", kWidth, 3, kMaskPixels);
  // A transposed convolution with stride 2: each pixel becomes four, one per weight of the kernel.
  per_pixel(roi + "mask_predictor.conv5_mask", kWidth, 2, kMaskPixels);
  per_pixel(roi + "mask_predictor.mask_fcn_logits", kClasses, 1, 4 * kMaskPixels);

  return {.name = "mask-rcnn-r50-fpn",
          .source = "He et al. 2017 (arXiv 1703.06870); torchvision maskrcnn_resnet50_fpn",
          .sample = "image of 800 x 1344, 512 boxes, 128 masks",
          .heads = "COCO's 91 classes; stem, first stage and batch normalization frozen",
          .batch = 4,
          .layers = std::move(layers)};
}

}  // namespace sluice::bench
