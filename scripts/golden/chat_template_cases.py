"""The templates and conversations that make_chat_template_golden.py renders."""

VARIABLES = {
    "s": "Hello, World", "u": "Größe: 東京 😀 ñ", "empty": "", "ws": "  \t x y \n", "multi": "a\nb\n\nc",
    "n": 42, "neg": -7, "f": 2.5, "big": 1e16, "tiny": 1e-7, "whole": 3.0, "t": True, "no": False, "nil": None,
    "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "ll": [[1, 2], [3, 4]], "mixed": [1, "x", None, True, 2.0],
    "d": {"b": 1, "a": {"x": [1, 2]}, "items": "shadow", "C": 2},
    "people": [{"name": "Ann", "age": 30, "tag": {"k": 1}}, {"name": "bob", "age": 25, "tag": {"k": 2}},
               {"name": "Cy", "age": 30}],
    "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"},
                 {"role": "assistant", "content": "A", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1.0}}}]}],
    "tree": [{"n": "1", "c": [{"n": "1.1", "c": []}, {"n": "1.2", "c": [{"n": "1.2.1", "c": []}]}]}, {"n": "2", "c": []}],
    "html": "<a href=\"x\">&'</a>", "ctrl": "q\"\\\n\r\t\b\f\u0001\u007f\u2028é",
}


def printed(*expressions):
    return ["{{ " + e + " }}" for e in expressions]


FEATURES = []
# Printing.
FEATURES += printed(
    "s", "n", "neg", "f", "big", "tiny", "whole", "t", "no", "nil", "l", "ls", "ll", "mixed", "d", "u", "[u]", "[ctrl]",
    "['it\\'s', \"q\\\"\", '\"\\'']", "(1,)", "()", "(1, 2)", "{}", "[]", "{'a': 1, 2: [None, 1.5]}", "1e300", "1e-5",
    "0.0001", "123456789012345678", "1e15", "1e16", "1.0e22", "0.1 + 0.2", "1/3", "-0.0", "1_000", "0x1F", "0b101", "0o17",
    "undefined_name", "[undefined_name]", "range(3)", "range(1, 7, 2)", "d.items()", "d.keys()", "d.values()",
    "'\\u00e9\\x41\\n\\t\\101'", "'a' 'b' \"c\"", "[1, 2,]", "'\\q'", "[true, True, false, none, None]", "1.5e3", "2.", "1 if t",
    "(1 if no)|default('d')", "1 if no else 2", "1 if no else 2 if no else 3", "['a\u200bb']", "[1.0, 100000000000000000.0]")
# Operators.
FEATURES += printed(
    "1 + 2 * 3", "(1 + 2) * 3", "7 // 2", "-7 // 2", "7 % 3", "-7 % 3", "7 % -3", "7.5 // 2", "-7.5 % 2", "2 ** 10", "2 ** -1",
    "2 ** 3 ** 2", "-2 ** 2", "10 / 4", "4 / 2", "1 ~ 2 ~ 'a' ~ none ~ true", "'a' + 'b'", "'ab' * 3", "3 * 'ab'", "[1] + [2]",
    "[0] * 3", "(1,) + (2,)", "1 < 2 < 3", "1 < 3 < 2", "1 == 1.0 == true", "'a' < 'b'", "[1, 2] < [1, 3]", "'a' in 'cat'",
    "'z' not in 'cat'", "2 in l", "'b' in d", "not t", "not no and t", "t and 'x'", "no or 'y'", "0 or none", "nil is none and t",
    "1 != 2", "'a' != 'a'", "+n", "-n", "- f", "5 - 3 - 1", "'%s-%d-%.2f-%x' % ('a', 5, 2.0, 255)", "'%5s|%-5s|%05d' % ('a', 'b', 42)",
    "'%s' % 'x'", "'%(a)s' % {'a': 1}", "'%%' % ()", "'100%' ~ ''", "none == none", "nil == false", "0 == false", "'' == none",
    "[1, 2] == [1.0, 2]", "{'a': 1} == {'a': 1.0}", "t + t", "1 in [true]", "undefined_name == undefined_name2", "undefined_name in l",
    "'x' in undefined_name", "2 > 1 and 3 >= 3 and 1 <= 1", "'a' ~ 1 + 2", "1 - 2 ~ 3", "1.0 * 3", "7 // 2.0", "1e308 * 10", "5 if s else 6",
    "-7 // 2.0", "2 * 3 % 4", "'%r' % 'x'", "'%s' % [1, 2]", "'%c' % 65", "'%+d % d' % (3, 4)", "'%e' % 12345.678", "'%g' % 0.0001")
# Subscripts.
FEATURES += printed(
    "l[0]", "l[-1]", "l[9]", "l[0:2]", "l[::-1]", "l[::2]", "l[-2:]", "l[:-1]", "l[5:]", "l[2:0:-1]", "s[0]", "s[-1]", "s[7:]", "s[::-1]", "u[0:5]",
    "u[7]", "u[-3]", "u[::-1]", "u[1::2]", "d.b", "d['b']", "d.a.x[1]", "d['a']['x'][0]", "d['items']", "d.missing",
    "d['missing']", "l.0", "ll.1.0", "messages[0].role", "messages[-1]['tool_calls'][0].function.arguments", "messages[1:][0].content",
    "range(10)[2:8:3]", "range(10)[-1]", "range(5)[::-1]", "'abc'['upper']()", "(1, 2, 3)[1:]", "d.get('b')", "d.get('zz')", "d.get('zz', 5)",
    "s.missing", "n.missing", "nil.missing", "l['x']", "d[nil]", "s['x']", "d[l]", "s[1:3][0]", "l[true]", "'x'.__class__", "u|length", "u[:100]")
# Errors.
FEATURES += printed(
    "undefined_name.x", "undefined_name['x']", "undefined_name()", "undefined_name + 1", "d.missing.x", "1 + 'a'", "'a' + 1", "none + 1",
    "[] + ()", "1 / 0", "1 // 0", "1 % 0", "'a' < 1", "none < 1", "1 in 5", "1 in 'a'", "-s", "s()", "n()", "d.missing()", "''.__class__.__mro__",
    "().__class__.__base__", "d.__class__()", "raise_exception('boom')", "s|nofilter", "s is notest", "l|join(1, 2, 3)", "range(10**9)",
    "range(1, 2, 0)", "{[]: 1}", "l.append(1)", "d.update({})", "l|map|list", "n|length", "n|list", "nil|join", "s|round", "f|items|list", "s|tojson(foo=1)",
    "undefined_name|tojson", "range(3)|tojson", "[range]|tojson", "l|sort(attribute='x')", "mixed|sort", "1 +", "(1", "[1", "{'a'}", "s.split('')",
    "s.index('zz')", "'%d' % 'x'", "'%s %s' % ('a',)", "'%s' % ('a', 'b')", "l[1:2:0]", "undefined_name < 1", "-undefined_name", "undefined_name|int",
    "undefined_name|float", "n|first", "s.join([1])", "dict(1)", "namespace(1)", "namespace(_x=1)", "cycler()", "s.upper(1)", "a b", "1 2", "'unclosed",
    "007", "f(a=1, 2)", "f(*l, 1)", "''['__class__']", "s|attr('__class__')", "1 is", "not", "l|batch",
    "undefined_name|sum", "s|sum", "x.", "x.'a'", "x|", "if", "d|dictsort(by='x')", "l|sort(foo=1)", "{{}}", "l is in", "1 is divisibleby")
FEATURES += [
    "{% if %}{% endif %}", "{% if x %}", "{% for x %}{% endfor %}", "{% for x in l %}", "{% endif %}", "{% foo %}", "{% set %}", "{% set 1 = 2 %}",
    "{% set d.x = 1 %}", "{% set x.y = 1 %}", "{% break %}", "{% continue %}", "{% for a, b in l %}{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}",
    "{% set a, b = 1 %}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m() %}{% endmacro %}{{ m(1) }}", "{% macro m() %}{% endmacro %}{{ m(x=1) }}",
    "{% macro m(a) %}{{ a.b }}{% endmacro %}{{ m() }}", "{% call s %}{% endcall %}", "{# unclosed", "{% raw %}x", "{{ 'a'", "{% if t %}{{ x", "{% for i in n %}{% endfor %}",
    "{% for loop in l %}{% endfor %}", "{% for i in l %}{% set loop = 1 %}{% endfor %}", "{% for i in l %}{{ loop(l) }}{% endfor %}", "{% include 'x' %}",
    "{% import 'x' as y %}", "{% extends 'x' %}", "{% from 'x' import y %}", "{% if no %}{{ s|nofilter }}{% endif %}", "{% if t %}{{ s|nofilter }}{% endif %}",
    "{{ s|nofilter if no }}", "{% if no %}{% for i in l %}{{ s|nofilter }}{% endfor %}{% endif %}", "{% for i in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{% generation %}{% break %}{% endgeneration %}", "{% for i in l %}{% generation %}{% break %}{% endgeneration %}{% endfor %}", "{% macro m(caller) %}{{ caller() }}{% endmacro %}",
    "{% set ns = namespace() %}{% set ns._x = 1 %}", "{% set ns = namespace() %}{{ ns.x.y }}", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "{% for i in undefined_name.x %}{% endfor %}", "{% elif %}", "{% else %}", "{{ }}", "{%  %}", "}}{{ 1 }}", "{% set x %}",
    "{% filter nofilter %}x{% endfilter %}", "{% with x %}{% endwith %}", "{% for i in l recursive %}{{ loop(3) }}{% endfor %}", "{% if t %}{% endfor %}", "{% do l.append(1) %}",
    "{% for i in l %}{% else %}{% break %}{% endfor %}",
]
# String methods.
FEATURES += printed(
    "s.upper()", "s.lower()", "s.title()", "s.capitalize()", "s.swapcase()", "u.upper()", "u.lower()", "'ΑΣ ΣΑΣ'.lower()", "'straße'.upper()", "'they\\'re bill'.title()",
    "s.split()", "s.split(',')", "s.split(', ')", "'a b  c'.split(' ')", "'a,b,c'.split(',', 1)", "'a,b,c'.rsplit(',', 1)", "ws.split()", "'a b c d'.split(none, 2)",
    "'a b c d'.rsplit(none, 2)", "'a b c'.split(maxsplit=1)", "ws.strip()", "ws.lstrip()", "ws.rstrip()", "'xxaxx'.strip('x')", "'abcba'.lstrip('ab')", "'abcba'.rstrip('ba')",
    "'日本x日'.strip('日')", "s.startswith('He')", "s.startswith(('x', 'He'))", "s.endswith('ld')", "s.startswith('lo', 3)", "s.endswith('lo', 0, 5)", "s.find('o')", "s.rfind('o')",
    "s.find('zz')", "s.find('o', 5)", "u.find('京')", "s.index('W')", "s.count('l')", "s.count('')", "'aaaa'.count('aa')", "s.replace('l', 'L')", "s.replace('l', 'L', 1)",
    "'abc'.replace('', '-')", "'éa'.replace('', '-', 2)", "''.replace('', 'x')", "', '.join(ls)", "''.join([])", "'-'.join('abc')", "multi.splitlines()", "multi.splitlines(true)", "'a\\r\\nb\\x0bc\\u2028d'.splitlines()",
    "'abc'.isalpha()", "'a1'.isalnum()", "'12'.isdigit()", "'1.2'.isdigit()", "'²'.isdigit()", "'²'.isdecimal()", "'½'.isnumeric()", "'  '.isspace()", "''.isspace()", "'Ab'.isupper()", "'AB1'.isupper()",
    "'ab1'.islower()", "'Ab Cd'.istitle()", "'aé'.isascii()", "'7'.zfill(3)", "'-7'.zfill(4)", "'a'.ljust(4) ~ '|'", "'a'.rjust(4, '*')", "'ab'.center(5, '*')", "'abc'.center(6, '*')",
    "'a=b=c'.partition('=')", "'a=b=c'.rpartition('=')", "'abc'.partition('x')", "'abc'.rpartition('x')", "'prefix-x'.removeprefix('prefix-')", "'x.txt'.removesuffix('.txt')", "'a\\tb'.expandtabs(4)",
    "'{} {1}'.format(1, 2)", "'{} {}'.format(1, 'x')", "'{a} {b!r}'.format(a=1, b='q')", "'{0:>5}|{0:<5}|{0:^5}'.format('x')", "'{:05.2f} {:,} {:x} {:#b} {:e}'.format(3.14159, 1234567, 255, 5, 12345.0)",
    "'{0[0]} {1[k]}'.format(l, {'k': 9})", "'{{}}'.format()", "'{:.3}'.format('abcdef')", "'{:+d} {:%}'.format(3, 0.25)", "s.casefold()", "'a'.islower() and 'B'.isupper()", "s|upper|lower")
# Filters.
FEATURES += printed(
    "s|length", "l|length", "d|count", "u|length", "empty|length", "s|upper", "s|lower", "s|capitalize", "'hello wORLD-foo (bar)'|title", "ws|trim", "'xxaxx'|trim('x')", "n|string + 'x'",
    "undefined_name|default('z')", "empty|default('z')", "empty|default('z', true)", "nil|d('z')", "nil|d('z', boolean=true)", "undefined_name|d", "l|join", "l|join(', ')", "people|join(',', attribute='name')",
    "people|map(attribute='name')|join('|')", "l|first", "l|last", "s|first", "s|last", "[]|first", "[]|last", "s|list", "d|list", "l|list", "people|map(attribute='age')|list", "people|map(attribute='tag.k')|list",
    "people|map(attribute='zz', default='?')|list", "ls|map('upper')|list", "ls|map('replace', 'a', 'x')|list", "ll|map('first')|list", "ll|map(attribute=0)|list", "l|select('odd')|list", "l|reject('odd')|list",
    "l|select('gt', 1)|list", "mixed|select|list", "mixed|reject|list", "mixed|select('string')|list", "people|selectattr('age', 'eq', 30)|map(attribute='name')|list", "people|rejectattr('age', 'equalto', 30)|list",
    "people|selectattr('tag')|list|length", "people|selectattr('tag', 'defined')|list|length", "people|rejectattr('tag', 'undefined')|list|length", "people|selectattr('name', 'in', ['Ann'])|list|length",
    "l|sort", "l|sort(reverse=true)", "ls|sort", "ls|sort(case_sensitive=true)", "people|sort(attribute='age')|map(attribute='name')|list", "people|sort(attribute='age,name')|map(attribute='name')|list", "people|sort(true, attribute='age')|map(attribute='name')|list",
    "[1, 2, 1, 3]|unique|list", "['a', 'A', 'b']|unique|list", "['a', 'A']|unique(true)|list", "people|unique(attribute='age')|map(attribute='name')|list", "l|reverse|list", "s|reverse", "u|reverse", "range(3)|reverse|list",
    "s|replace('l', 'L')", "s|replace('l', 'L', 2)", "'12'|int", "'x'|int", "'x'|int(9)", "'0x1f'|int(base=16)", "'12.9'|int", "3.9|int", "-3.9|int", "' 7 '|int", "true|int", "'101'|int(0, 2)", "none|int", "'2.5'|float", "'x'|float", "'x'|float(1.5)", "3|float",
    "'1e3'|float", "'inf'|float", "'-nan'|float|string", "none|float", "n|string", "nil|string", "l|string", "f|string", "d|items|list", "undefined_name|items|list", "multi|indent", "multi|indent(2, true)", "multi|indent(2, blank=true)", "multi|indent('>> ')", "empty|indent(2, true)",
    "html|e", "html|escape|escape", "html|safe", "html|forceescape", "(html|safe) ~ '<'", "('<b>'|safe) + '<i>'", "[html|e]", "{'b': 1, 'A': 2}|dictsort", "{'b': 1, 'A': 2}|dictsort(true)", "{'b': 1, 'a': 2}|dictsort(by='value')", "{'b': 1, 'a': 2}|dictsort(reverse=true)", "l|sum", "people|sum(attribute='age')",
    "l|sum(start=10)", "[0.1, 0.2]|sum", "l|min", "l|max", "ls|min", "ls|max", "people|min(attribute='age')", "people|max(attribute='name')", "[]|max", "2.5|round", "3.5|round", "2.675|round(2)", "42|round", "42|round(-1)", "45|round(-1)", "2.1|round(method='ceil')", "2.19|round(1, 'floor')", "1234.5|round(-2)",
    "-5|abs", "-2.5|abs", "range(7)|batch(3)|list", "range(7)|batch(3, 'x')|list", "range(7)|slice(3)|list", "range(7)|slice(3, 'x')|list", "'a b, c-d é'|wordcount", "people|groupby('age')", "people|groupby('age')|map(attribute='grouper')|list", "people|groupby('tag.k', default=0)|map('first')|list",
    "'a b/ü?&'|urlencode", "{'a b': 'c/d', 'e': 1}|urlencode", "'%s-%s'|format('a', 1)", "'%(x)s'|format(x=2)", "'x'|center(5) ~ '|'", "('word ' * 20)|truncate(20)", "'short'|truncate(4)", "('word ' * 20)|truncate(20, true, '!')",
    "d|tojson", "mixed|tojson", "ctrl|tojson", "u|tojson", "u|tojson(ensure_ascii=true)", "ctrl|tojson(ensure_ascii=true)", "d|tojson(indent=2)", "ll|tojson(indent=1)", "[[], {}]|tojson(indent=4)", "d|tojson(sort_keys=true)", "d|tojson(separators=(',', ':'))", "d|tojson(indent='\\t')", "d|tojson(indent=0)",
    "d|tojson(indent=2, separators=(', ', ': '))", "html|tojson", "{1: 2, 1.5: 3, none: 4, true: 5}|tojson", "(1, 2)|tojson", "'inf'|float|tojson", "[1.0, 1e20, 1e-9]|tojson",  "d|attr('b')", "s|attr('upper') is defined", "nil|tojson", "[true, none]|tojson", "[]|tojson", "l|map('string')|join", "undefined_name|length", "undefined_name|list", "undefined_name|join(',')",
    "[3, [1]]|last|first", "'abc'|map('upper')|list", "l|map('multiply')|list", "[1,2,3]|select('divisibleby', 3)|list", "[[2,'b'],[1,'a']]|sort", "d|length", "people|map('items')|map('list')|first", "['x','y']|map('default', 'z')|list")
# Tests.
for value in ["s", "n", "f", "t", "nil", "l", "d", "undefined_name", "(1,)", "range(3)", "d.items()", "range", "s.upper", "l|map('string')"]:
    FEATURES.append("{% set v = " + value + " %}" + "".join("{{ v is " + test + " }} " for test in (
        "defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "iterable", "sequence", "true", "false", "callable")))
FEATURES += printed(
    "1 is odd", "2 is even", "2 is not odd", "9 is divisibleby 3", "9 is divisibleby(4)", "1 is in [1, 2]", "1 is eq 1", "1 is ne 1", "1 is lt 2", "1 is gt 2", "1 is le 1", "1 is ge 2", "1 is equalto 1", "'a' is lower", "'A' is upper", "nil is sameas none",
    "1 is sameas true", "s is string and n is number", "s is defined and not undefined_name is defined", "s is not none", "d.a is mapping", "'upper' is filter", "'zz' is filter", "'odd' is test", "(html|e) is escaped", "1 is greaterthan 0", "1.0 is integer", "1 is in(l)", "t is true and t is boolean", "not s is none", "l is sequence and l is not mapping", "5 is odd and 4 is even", "'x' if s is undefined else 'y'", "3 is lessthan 4")
# Statements and scopes.
FEATURES += [
    "{% if t %}a{% elif n %}b{% else %}c{% endif %}", "{% if no %}a{% elif n %}b{% else %}c{% endif %}", "{% if no %}a{% elif nil %}b{% else %}c{% endif %}", "{% if no %}{% endif %}x",
    "{% for i in l %}{{ i }}{% if not loop.last %},{% endif %}{% endfor %}", "{% for i in [] %}x{% else %}none{% endfor %}", "{% for i in l %}x{% else %}none{% endfor %}", "{% for i in l if i > 1 %}{{ loop.index }}:{{ i }}/{{ loop.length }} {% endfor %}",
    "{% for i in l if i > 9 %}x{% else %}none{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for c in u %}[{{ c }}]{% endfor %}", "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }} {% endfor %}",
    "{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}", "{% for i in l %}{{ loop.previtem is defined }}{{ loop.nextitem is undefined }} {% endfor %}", "{% for i in [1,1,2,2,1] %}{{ i if loop.changed(i) }}{% endfor %}", "{% for i in range(5) %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for i in range(10) %}{% if i == 3 %}{% break %}{% endif %}{% if i is odd %}{% continue %}{% endif %}{{ i }}{% endfor %}", "{% for i in [1] %}{% continue %}{% else %}E{% endfor %}", "{% for i in [1] %}{% break %}{% else %}E{% endfor %}", "{% for i in [1, 2] %}{% if i == 2 %}{% break %}{% endif %}{% else %}E{% endfor %}",
    "{% for n in tree recursive %}{{ n.n }}{% if n.c %}({{ loop(n.c) }}){% endif %}@{{ loop.depth }} {% endfor %}", "{% for i in l %}{% for j in l %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}", "{% for i in l %}{{ i }}{% endfor %}{{ i }}", "{% set i = 9 %}{% for i in l %}{{ i }}{% endfor %}{{ i }}",
    "{% set x = 1 %}{% for i in l %}{% set x = i %}{{ x }}{% endfor %}{{ x }}", "{% set x = 1 %}{% if t %}{% set x = 2 %}{% endif %}{{ x }}", "{% if no %}{% set x = 2 %}{% endif %}{{ x }}", "{% if no %}{% set s = 2 %}{% endif %}{{ s }}", "{% set s = s ~ '!' %}{{ s }}", "{% for i in l %}{% set n = n + i %}{{ n }} {% endfor %}{{ n }}",
    "{% for i in l %}{% if loop.first %}{% set s = 'x' %}{% endif %}{{ s }} {% endfor %}", "{% set x = 0 %}{% for i in l %}{% if loop.first %}{% set x = 5 %}{% endif %}{{ x }} {% endfor %}", "{% for i in [1] %}{{ s }}{% endfor %}{% set s = 1 %}", "{{ s }}{% set s = 1 %}{{ s }}", "{% for i in [1,2] %}{{ s }}{% set s = i %}{% endfor %}",
    "{% set ns = namespace(x=0, y='a') %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }}{{ ns.z }}", "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns['b'] }}{{ ns }}", "{% set ns = namespace() %}{% set ns.self = ns.q %}{{ ns.self is undefined }}",
    "{% set ns = namespace(done=false) %}{% for i in l if not ns.done %}{{ i }}{% set ns.done = true %}{% endfor %}", "{% set ns = namespace(done=false) %}{% for i in l if not ns.done %}{{ i }}{{ loop.last }}{% set ns.done = true %}{% endfor %}", "{% for i in l if i != 1 %}{{ i }}{{ loop.nextitem }}{{ loop.length }} {% endfor %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set (a, b) = 'xy' %}{{ a }}{{ b }}", "{% set a = 1, %}{{ a }}", "{% set x %}a{{ n }}b{% endset %}{{ x }}{{ x|length }}", "{% set x | upper | replace('A', 'z') %}a{{ n }}b{% endset %}{{ x }}", "{% set x %}{% set y = 1 %}{% endset %}{{ y }}",
    "{% set ns = namespace() %}{% set ns.a, b = 1, 2 %}{{ ns.a }}{{ b }}", "{% set ns = namespace() %}{% set ns.a %}blk{% endset %}{{ ns.a }}", "{% with a = 1, b = n %}{{ a }}{{ b }}{% set c = 3 %}{% endwith %}{{ a }}{{ c }}", "{% with %}{% set z = 1 %}{{ z }}{% endwith %}{{ z }}", "{% with a = n %}{% with a = a + 1 %}{{ a }}{% endwith %}{{ a }}{% endwith %}",
    "{% filter upper %}a{{ s }}{% endfilter %}", "{% filter replace('a', 'b')|upper %}aac{% endfilter %}", "{% filter trim %}  {% set q = 1 %}x {% endfilter %}{{ q }}", "{% macro m(a, b=2) %}{{ a }}-{{ b }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=5, a=4) }}{{ m() }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m(a) %}{{ a }}{{ varargs|length }}{% endmacro %}{{ m(1, 2, 3) }}", "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}", "{% macro m(x) %}[{{ caller() }}{{ x }}]{% endmacro %}{% call m(7) %}in{{ n }}{% endcall %}",
    "{% macro m() %}{{ caller(1, y=2) }}{% endmacro %}{% call(x, y=0) m() %}{{ x }}{{ y }}{% endcall %}", "{% macro m(caller=none) %}{{ caller is none }}{% endmacro %}{{ m() }}", "{% macro m() %}{{ x }}{% endmacro %}{% set x = 5 %}{{ m() }}", "{% set x = 1 %}{% macro m() %}{% set x = 2 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}",
    "{% macro f(i) %}{% if i > 0 %}{{ i }}{{ f(i - 1) }}{% endif %}{% endmacro %}{{ f(4) }}", "{{ m is defined }}{% macro m() %}{% endmacro %}{{ m is defined }}{{ m.name }}{{ m.arguments }}", "{% macro m(s) %}{{ s }}{{ n }}{% endmacro %}{{ m('q') }}{{ s }}", "{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}{{ m(none) }}", "{% macro a() %}A{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}", "{% set m = 3 %}{% macro m() %}x{% endmacro %}{{ m() }}", "{{ dict(a=1, **{'b': 2}) }}{{ dict([('x', 1)]) }}", "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.next() }}{% set _ = c.reset() %}{{ c.next() }}",
    "{% set j = joiner('|') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}", "{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(**{'a': 3, 'b': 4}) }}", "{{ strftime_now('%Y-%m-%d %H:%M') }}", "{{ strftime_now('%d %b %Y %A %j%%') }}", "{{ strftime_now('') }}",
    "{% set g = l|map('string') %}{{ g|join }}{{ g|join }}", "{% set g = l|select('odd') %}{% for x in g %}{{ x }}{% endfor %}{{ g|list }}", "{% for x in l|map('string') %}{{ x }}{{ loop.length }}{{ loop.last }}{% endfor %}", "{% print s, n %}", "{% if t: %}x{% endif %}", "{% for i in l: %}{{ i }}{% endfor %}", "{% for i in 1, 2, 3 %}{{ i }}{% endfor %}",
    "{% for k, v in d|dictsort %}{{ k }}{% endfor %}", "{% for g, items in people|groupby('age') %}{{ g }}:{{ items|length }} {% endfor %}", "{% for g in people|groupby('age') %}{{ g.grouper }}:{{ g.list|length }} {% endfor %}", "{% for i in undefined_name %}x{% else %}e{% endfor %}", "{% if undefined_name %}x{% endif %}y", "{% for i in l %}{{ loop }}{% endfor %}",
    "{% macro m() %}m{% endmacro %}{{ m }}", "{% set x = namespace %}{{ x(a=1).a }}", "{% for i in l %}{% set outer = loop %}{% for j in l %}{{ outer.index }}{% endfor %}{% endfor %}", "{% for i in l %}{% with %}{% set z = i %}{{ z }}{% endwith %}{% endfor %}{{ z }}", "{% set x = 1 %}{% with x = 2 %}{% for i in [1] %}{{ x }}{% endfor %}{% endwith %}{{ x }}",
    "{% if t %}{% macro m() %}{{ q }}{% endmacro %}{% endif %}{% set q = 1 %}{{ m() }}", "{% for m in messages %}{% if m.tool_calls is defined %}{% for c in m.tool_calls %}{{ c.function.name }}({{ c.function.arguments | tojson }}){% endfor %}{% endif %}{% endfor %}", "{%- for m in messages -%}\n  {{ m.role }}\n{%- endfor -%}\n",
    "{% for i in l %}{% if i == 1 %}{% set ns = 1 %}{% elif i == 2 %}{% set zz = 2 %}{% else %}{% set zz = 3 %}{% endif %}{{ zz }}{{ ns }} {% endfor %}", "{% for i in [1,2] %}{% if i == 1 %}{% set zz = 1 %}{% endif %}{{ zz }}{% endfor %}", "{% set x = 7 %}{% for i in [1,2] %}{% if i == 2 %}{% set x = 1 %}{% endif %}{{ x }}{% endfor %}{{ x }}",
    # Generation blocks.
    "{% generation %}a{% endgeneration %}", "x{% generation %}{{ u }}{% endgeneration %}y{% generation %}z{% endgeneration %}", "é{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }}!{% endgeneration %}{% endif %}\n{% endfor %}", "{%- generation -%} a {%- endgeneration -%} b",
    "{% generation %}{% set q = 1 %}{{ q }}{% endgeneration %}{{ q }}", "{% generation %}{% endgeneration %}", "{% set q = 1 %}{% generation %}{% set q = q + 1 %}{{ q }}{% endgeneration %}{{ q }}", "{% for m in messages %}{% generation %}{{ loop.index }}{{ m.role }}{% endgeneration %}{% endfor %}",
    # White space.
    "a\n{% if t %}\nb\n{% endif %}\nc\n", "a\n  {% if t %}\n  b\n  {% endif %}\n  c\n\n", "a  {%- if t -%}  b  {%- endif -%}  c", "a  {%+ if t +%}  b  {%+ endif +%}\n  c", "  {{ s }}  \n  {{- s -}}  \n x", "{# c #}\na\n  {# c #}\nb {#- c -#} d", "  {%- set x = 1 %}\n  {{ x }}\n", "a\n\n{%- if t %}\n\nb{% endif %}",
    "{% raw %}{{ x }}{% y %}{# z #}{% endraw %}", "a {%- raw -%} {{ x }} {%- endraw -%} b", "{% raw %}\n a\n  {% endraw %}\nb", "a\r\nb\rc\n", "x\n", "x\n\n", "\n", "", "  {# a #}  {# b #}\nx", "{% if t %}  {% if t %}\nx{% endif %}{% endif %}", "\t{% if t %}\n\tx\n\t{% endif %}", "a{#- b #}\n c", "{#-#}x", "{#\n multi\n#}\nx", "a {# {{ no }} #} b", "{{ '{% x %}' }}", "{{ '}}' }}", "{{ {'a': {'b': 1}} }}", "{{ {'a': {'b': 1}}}}",
    "{{-s-}}", "{%if t%}x{%endif%}", "{% if t -%}\n\n  x\n  {%- endif %}", "a\n{%+ if t %}b{% endif %}", "a\n   {%+ if t %}b{% endif %}", "a\u00a0{%- if t %}b{% endif %}", "{% for i in l %}\n{{ i }}\n{% endfor %}\nend", "{% for i in l -%}\n{{ i }}\n{%- endfor %}\nend", "\n\n{% set x = 1 %}\n\n{{ x }}", "{% set x %}\n a\n{% endset %}[{{ x }}]",
]

FEATURES += ["{{ nil[:2] }}", "{{ n[1:] }}", "{{ t[:1] }}", "{{ f[::2] }}", "{{ d[:2] }}", "{{ nope[:2] }}", "{{ (nil or s)[:2] }}"]
FEATURES += [
    "{{ '\u0663'|int }}{{ ' \u0967\u0968 '|int(7) }}{{ '\U0001d7d9'|int }}{{ '\u0661.\uff15'|float }}{{ '\u00b2'|int }}",
    "{{ messages|truncate(8) }}",
    "{{ range(20)|list|truncate(8) }}",
    "{{ n|truncate(8) }}",
    "{{ nil|truncate }}",
    "{{ nope|truncate }}",
    "{{ n|indent }}",
    "{{ nil|indent }}",
    "{{ l|indent }}",
    "{{ nope|indent }}",
    "{{ s|groupby('a')|list|length }}",
    "{{ people|groupby('tag')|length }}",
    "{{ ['a']|groupby('a')|list|length }}",
    "{{ people|groupby('age')|map('first')|list }}",
]

TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Wetter für <Ort> & \"mehr\"", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": "城市"}, "days": {"type": "integer", "default": 3},
                                     "unit": {"type": "string", "enum": ["C", "F"]}}, "required": ["city"]}}}]


def call(name, arguments, **more):
    return {"role": "assistant", "content": more.get("content", ""), "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}]}


def chat(*messages, **more):
    return {"messages": list(messages), "add_generation_prompt": more.pop("generate", False), **more}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


SYSTEM = {"role": "system", "content": "Be brief."}
ARGUMENTS = {"city": "Zürich \"x\" <b>", "days": 2.5, "deep": {"a": [1, None, True, 1e-7, 1e22], "s": "日本"}, "flag": False, "none": None}
CONVERSATIONS = {
    "user": chat(user("Hi"), generate=True),
    "system": chat(SYSTEM, user("  Größe 東京 😀\n\nx "), generate=True),
    "turns": chat(SYSTEM, user("a"), assistant("b"), user("c"), assistant(" d\n")),
    "think": chat(user("q"), assistant("<think>\nr1\n</think>\n\nA1"), user("q2"), assistant("<think>\nr2\n</think>\n\nA2")),
    "reasoning": chat(user("q"), assistant("A", reasoning_content="why"), user("q2"), assistant("B", reasoning_content="because\n"), generate=True),
    "think_off": chat(SYSTEM, user("q"), generate=True, enable_thinking=False),
    "think_on": chat(user("q"), generate=True, enable_thinking=True, thinking=True),
    "tools": chat(SYSTEM, user("w?"), generate=True, tools=TOOLS),
    "tools_no_system": chat(user("w?"), tools=TOOLS, generate=True),
    "tool_call": chat(user("w?"), call("get_weather", ARGUMENTS), {"role": "tool", "content": "{\"t\": 20.0}", "tool_call_id": "c1"}, generate=True, tools=TOOLS),
    "tool_call_text": chat(user("w?"), call("get_weather", "{\"city\": \"X\"}", content="Let me see."), {"role": "tool", "content": "ok"}, {"role": "tool", "content": "ok2"}, assistant("done"), tools=TOOLS),
    "content_list": chat(user([{"type": "text", "text": "part é"}, {"type": "text", "text": " two"}]), generate=True),
    "empty": chat(user(""), assistant(""), generate=True),
    "no_messages": chat(generate=True),
    "assistant_first": chat(assistant("x"), user("y")),
    "null_content": chat(user("q"), {"role": "assistant", "content": None}),
    "odd_role": chat({"role": "narrator", "content": "z"}, user("q"), generate=True),
    "no_content": chat({"role": "user"}, generate=True),
}
