#include <tandem/telemetry/svg.h>

#include <tandem/telemetry/text.h>

namespace tandem::inline v0::telemetry {

std::string xml_text(std::string_view text) {
  std::string out;
  for (const char c : clean_text(text)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      default: out += c;
    }
  }
  return out;
}

double text_width(std::string_view clean, double size) { return 0.6 * size * columns(clean); }

Picture::Picture(double width, double height, std::string_view title) {
  add(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}" role="img">
<title>{2}</title>
<style>
text {{ font-family: Helvetica, Arial, sans-serif; fill: #333333 }}
.back {{ fill: #ffffff }}
.grid {{ stroke: #e3e3e3 }}
.axis {{ stroke: #555555 }}
.compute {{ fill: #0072b2 }}
.exchange {{ fill: #d55e00 }}
.input {{ fill: #009e73 }}
.copying {{ fill: #cc79a7 }}
.checkpoint {{ fill: #e69f00 }}
.other {{ fill: #9a9a9a }}
.title {{ font-size: 17px; font-weight: bold }}
.panel {{ font-size: 14px; font-weight: bold }}
.label {{ font-size: 12.5px }}
.small {{ font-size: {3}px }}
.on {{ fill: #ffffff }}
path {{ stroke-linejoin: round; stroke-linecap: round }}
@media (prefers-color-scheme: dark) {{
text {{ fill: #d8d8d8 }}
.back {{ fill: #1c1c1c }}
.grid {{ stroke: #3a3a3a }}
.axis {{ stroke: #8a8a8a }}
}}
</style>
<rect width="100%" height="100%" class="back"/>
)",
      width, height, xml_text(title), kSmallText);
  text(kMargin, kMargin + 13, "class=\"title\"", title);
}

void Picture::text(double x, double y, std::string_view style, std::string_view content) {
  add("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, style, xml_text(content));
}

void Picture::text_upwards(double x, double y, std::string_view style, std::string_view content) {
  add("<text transform=\"translate({:.1f} {:.1f}) rotate(-90)\" {} text-anchor=\"middle\">{}</text>\n", x, y, style,
      xml_text(content));
}

void Picture::line(double x1, double y1, double x2, double y2, std::string_view style) {
  add("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1, x2, y2, style);
}

}  // namespace tandem::inline v0::telemetry
