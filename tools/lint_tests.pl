#!/usr/bin/perl
# Part of `make lint`: every test is run by some target, the tests that SECURITY.md names exist, and so do
# the cases that are left out by `make test` (tests/only_all.txt) and by the sanitizers
# (tests/not_sanitized.txt). Reads the list of files from its command line, prints violations as
# file:line: text, exits 1 when there is one. (The names of kernel checks are made when they run:
# check_cudasim itself fails on a line that names none.)
use strict;
use warnings;

my @lists = ('tests/only_all.txt', 'tests/not_sanitized.txt');
my $bad = 0;

sub text_of
{
    my ($file) = @_;
    open my $f, '<', $file or return '';
    local $/;
    return scalar <$f>;
}

sub violation
{
    print "$_[0]:$_[1]: $_[2]\n";
    $bad = 1;
}

# What a file is run by: a pattern of the wildcards of make, or a runner that reads all of its folder.
my @run_by = (
    [qr{^(tests/unit/test_)\w+\.c$}, 'tools/make/tests.mk', 'tests/unit/test_*.c'],
    [qr{^(tests/cudasim/test_)\w+\.c$}, 'tools/make/tests.mk', 'tests/cudasim/test_*.c'],
    [qr{^(tests/fuzz/fuzz_)\w+\.c$}, 'tools/make/fuzz.mk', 'tests/fuzz/fuzz_*.c'],
    [qr{^tests/kernels/check_cuda\w*\.c$}, 'tools/make/tests.mk', 'tests/kernels/check_cuda*.c'],
    [qr{^tests/kernels/check_\w+\.c$}, 'tools/make/tests.mk', 'tests/kernels/*.c'],
    [qr{^tests/gpu/(check_\w+)\.c$}, 'tools/make/tests.mk', undef],
    [qr{^tests/(?:cli|server)/\w+\.case\.sh$}, undef, '"$here"/*.case.sh'],
    [qr{^python/tests/test_\w+\.py$}, 'python/tests/run.py', 'discover'],
    [qr{^(tests/packages/deb\.sh)$}, 'tools/make/package.mk', undef],
    [qr{^(tests/\w+/\w+\.sh)$}, 'tools/make/tests.mk', undef],
);
# Read by others, not run.
my %part = map { $_ => 1 } qw(tests/cli/video.sh tests/packages/check.sh tests/fuzz/long.sh);

for my $file (@ARGV) {
    next if $part{$file} || $file !~ m{^(?:tests/\w+|python/tests)/(?:test_|check_\w+\.c$|fuzz_|\w+\.sh$|\w+\.case\.sh$)};
    my ($rule) = grep { $file =~ $_->[0] } @run_by;
    if (!$rule) {
        violation($file, 1, 'no target runs this test: see tools/lint_tests.pl');
        next;
    }
    my ($pattern, $in, $text) = @$rule;
    my ($name) = $file =~ $pattern;
    $in //= $file =~ s{/[^/]*$}{/run.sh}r;
    $text //= $name;
    violation($file, 1, "no target runs this test: $in does not have $text") if index(text_of($in), $text) < 0;
}

# Whether a file has this case: TEST(CASE); a command with the name as its first argument; or one with
# "prefix_$word" in a loop over words.
sub has_case
{
    my ($text, $case) = @_;
    return 1 if $text =~ /^TEST\(\Q$case\E\)/m || $text =~ /^\s*\w+ (["']?)\Q$case\E\1(?:\s|$)/m;
    while ($text =~ /"(\w+_)\$\{?(\w+)\}?"/g) {
        my ($prefix, $word) = ($1, $2);
        next if index($case, $prefix) != 0;
        my $rest = substr $case, length $prefix;
        return 1 if $text =~ /^\s*for $word in (?:[^\n;]* )?(["']?)\Q$rest\E\1[ ;]/m;
    }
    return 0;
}

my %seen;
my $line = 0;
for (split /\n/, text_of('SECURITY.md')) {
    $line++;
    while (/`(tests\/[\w.\/-]+)`(?:: `([^`]*)`)?/g) {
        my ($file, $cases) = ($1, $2 // '');
        violation('SECURITY.md', $line, "there is no $file"), next unless -e $file;
        for my $case (split /, */, $cases) {
            violation('SECURITY.md', $line, "$file has no case $case") unless has_case(text_of($file), $case);
        }
    }
}

for my $list (@lists) {
    $line = 0;
    for (split /\n/, text_of($list)) {
        $line++;
        next if /^#/ || !length;
        my ($program, $case) = /^(\S.*?): (\S.*)$/ or do { violation($list, $line, 'expected "PROGRAM: CASE"'); next };
        violation($list, $line, 'listed twice') if $seen{$_}++;
        if ($program =~ m{^tests/(?:cli|server)$}) {
            violation($list, $line, "$program has no case of this name")
                unless -e "$program/$case" || grep { index(text_of($_), "left_out \"$case\"") >= 0 } glob "$program/*.sh";
        } elsif ($program =~ m{^test_\w+$}) {
            my ($source) = grep { -e } "tests/unit/$program.c", "tests/cudasim/$program.c";
            violation($list, $line, "there is no $program"), next unless $source;
            violation($list, $line, "$source has no TEST($case)")
                unless index(text_of($source), "TEST($case)") >= 0;
        } elsif ($program !~ m{^check_(?:kernels|cudasim|cudasim --hopper)$}) {
            violation($list, $line, "unknown program $program");
        }
    }
}
exit $bad;
