#pragma once

#include <string>
#include <vector>

#include <tandem/tensor/tensor.h>

// Pictures of images and of what a model makes of them, as SVG.

namespace example {

/// A picture that is drawn piece by piece. What belongs to a title begins at kTop.
class Picture {
 public:
  static constexpr double kTop = 70;

  Picture(int width, int height);
  void title(double x, const std::string& text);
  void text(double x, double y, const std::string& text, const char* attributes = "");
  void square(double x, double y, double side, const std::string& colour);
  /// An image [1, side, side] as ink on paper, or [3, side, side] in colours. `low` is paper or black, `high` ink or
  /// the brightest colour.
  void image(double x, double y, double side, const tandem::Tensor& image, double low, double high);
  /// Points [count, 2] in a square of the plane, from -reach to reach both ways. Others are left out.
  void points(double x, double y, double side, const tandem::Tensor& points, double reach);
  /// The text of the SVG file.
  std::string svg() const { return svg_ + "</svg>\n"; }

 private:
  std::string svg_;
};

/// From white at 0 to a colour at 1.
std::string shade(double value, int red, int green, int blue);

/// Draws, 655 wide from `left` on, how often classes were taken for which (confusion [true, guess]), and the ten images
/// [rows, channels, side, side] whose own class got the least probability [rows, classes].
void draw_results(Picture& picture, double left, const tandem::Tensor& images, const tandem::Tensor& labels,
                  const tandem::Tensor& probabilities, const std::vector<std::string>& classes);

}  // namespace example
