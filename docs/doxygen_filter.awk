# Tells Doxygen how our headers are written. Lines keep their numbers.
# - A comment stands for the overloads that follow it directly, too. What has none is described by the heading of its
#   section, if that is more than a title: `// ---- in place; recorded under grad mode ----`. A constructor or forward()
#   without one does what its class says.
# - A comment behind a declaration belongs to that declaration.
# - Copies, moves, destructors and inherited constructors mean what C++ says: they are left out.
# - The inline namespace is about linking.

# What is left of a line for counting brackets: no comments, no text.
function code_of(line) {
  sub(/\/\/.*/, "", line)
  gsub(/"([^"\\]|\\.)*"/, "", line)
  gsub(/'[^']'/, "", line)
  return line
}

function count(text, characters) { return gsub(characters, "", text) }

function is_self_evident(code) {
  return code ~ /= (default|delete);/ || code ~ /^ *(virtual )?~/ || code ~ /^ *using [A-Za-z:]+::[A-Z][A-Za-z]*;/ ||
    code ~ /^ *[A-Z][A-Za-z]*\((const )?[A-Z][A-Za-z]*(<[A-Z]>)?&&?( [a-z]+)?\)( noexcept)?( *;| :| \{)/ ||
    code ~ /^ *[A-Z][A-Za-z]*& operator=\((const )?[A-Z][A-Za-z]*&&?( [a-z]+)?\)/
}

# "sum" for `Tensor sum(const Shape& dims) const;`
function function_name(code) {
  if (code !~ /\(/) return ""
  sub(/\(.*/, "", code)
  sub(/.* /, "", code)
  return code
}

# What is known about a function that has no comment of its own.
function said(name) {
  if (name == documented) return comment
  if (name == class || name == "forward") return "As the class says."
  return section
}

# Brackets that are open after this line; while a body or a declaration to be left out is open, its end is awaited.
BEGIN { depth = 0; awaited = -1; hide = 0 }

{
  line = $0
  sub(/tandem::inline v0/, "tandem", line)
  code = code_of(line)
  before = depth
  depth += count(code, "[{(]") - count(code, "[})]")

  if (awaited >= 0) {
    print hide ? "" : line
    if (depth <= awaited && code ~ /[;}] *$/) awaited = -1
    next
  }
  if (line ~ /^ *\/\/\//) {
    text = line
    sub(/^ *\/\/\/ ?/, "", text)
    comment = fresh ? comment " " text : text
    fresh = 1
    print line
    next
  }
  if (code ~ /^ *requires / || code ~ /^template <>/) {
    if (code ~ /^template/) awaited = before  # a specialisation says nothing new
    hide = code ~ /^template/
    print hide ? "" : line
    next
  }
  if (line ~ /^ *\/\/ ---- .* ----$/ || line ~ /^};/) {
    section = line ~ /---- .*[.,:;]/ ? line : ""
    gsub(/^ *\/\/ ---- | ----$/, "", section)
  }
  if (!fresh && is_self_evident(code)) {
    hide = 1
    if (depth > before || code !~ /[;}] *$/) awaited = before
    fresh = 0
    documented = ""
    print ""
    next
  }
  hide = 0
  name = function_name(code)
  prefix = ""
  if (code ~ /^ *template </ && !fresh) {  # whose name comes with the next line
    held = line
    for (;;) {
      getline line
      code = code_of(line)
      depth += count(code, "[{(]") - count(code, "[})]")
      if (code !~ /^ *requires/) break
      held = held "\n" line
    }
    name = function_name(code)
    if (name != "" && said(name) != "") held = "/** " said(name) " */ " held
    print held
  } else if (name != "" && !fresh && said(name) != "") {
    prefix = "/** " said(name) " */ "
  }
  if (code !~ /^ *template </) {
    documented = fresh || name == documented ? name : ""
    fresh = 0
  }
  if (depth == before && code ~ /([;,}]|^ *[a-z0-9_]+) *$/) sub(/ +\/\/ /, " ///< ", line)
  print prefix line
  if (depth < before && depth in outer) {  # the end of a class within another
    class = outer[depth]
    delete outer[depth]
  }
  if (depth > before) {
    if (code !~ /(^| )(namespace|class|struct|enum|union) [^()]*\{/) {
      awaited = before
    } else if (code ~ /(class|struct) /) {
      outer[before] = class
      class = code
      sub(/ (: |final|\{).*/, "", class)
      sub(/.* /, "", class)
    }
  }
}
