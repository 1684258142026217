#!/usr/bin/perl
# The textual part of `make lint`: reads the files named on the command line, prints violations as
# file:line: text, exits 1 when there is one.
use strict;
use warnings;

my %rank = (base => 0, tensor => 1, kernels => 2, dist => 2.5, format => 3, audio => 3, text => 4, video => 4,
            vision => 5, lm => 5, audio_encoder => 5.5, family => 6, spec => 7, engine => 8);
# Headers of libraries whose types stay in one folder.
my @confined = ([qr/^jansson/, 'src/format/', 'server/'], [qr/^pcre2/, 'src/text/'],
                [qr/^utf8proc/, 'src/text/'], [qr/^libav|^libsw/, 'src/video/'],
                [qr/^cuda|^cublas/, 'src/kernels/cuda/'], [qr/^microhttpd/, 'server/http_'],
                [qr/^curl/, 'server/remote_curl.c'],
                [qr/^mpi\.h/, 'src/dist/']);
my $banned = qr/(?<![>.])\b(v?sprintf|strcpy|strcat|atoi|atol|atof|gets|alloca|system|strtok)\s*\(/;
my $banned_in_src = qr/(?<![>.])\b(getenv|secure_getenv|setenv|_?exit|abort|v?printf|f?puts|putchar|perror)\s*\(/;
my $allocation = qr/(?<![>.])\b(malloc|calloc|realloc|aligned_alloc|free|strn?dup)\s*\(/;
my ($max_function, $max_file) = (100, 1200);
my $bad = 0;

sub violation
{
    my ($file, $line, $text) = @_;
    print "$file:$line: $text\n";
    $bad = 1;
}

sub line_of
{
    my ($text, $at) = @_;
    return 1 + (substr($text, 0, $at) =~ tr/\n//);
}

# The code without comments and without the contents of strings; lines stay where they are.
sub strip
{
    my ($code) = @_;
    $code =~ s{(/\*.*?\*/|//[^\n]*)|("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')}
              {defined $1 ? $1 =~ s/[^\n]/ /gr : substr($2, 0, 1) . ' ' x (length($2) - 2)
               . substr($2, 0, 1)}gse;
    return $code;
}

sub check_include
{
    my ($file, $line, $quoted, $name) = @_;
    for my $c (@confined) {
        my ($header, @folders) = @$c;
        violation($file, $line, "<$name> belongs in @folders alone")
            if $name =~ $header && $file !~ /^tests/ && !grep { index($file, $_) == 0 } @folders;
    }
    return unless $quoted;
    my ($to) = $name =~ m{^(\w+)/};
    return if !defined $to || $name =~ m{^prevue/(prevue|testing|about)\.h$} || $name eq 'cudasim/cudasim.h';
    if (my ($from) = $file =~ m{^src/(\w+)/}) {
        if (!defined $rank{$to}) {
            violation($file, $line, "\"$name\" is in no layer");
        } elsif ($to ne $from && $rank{$to} >= ($rank{$from} // -1)) {
            violation($file, $line, "$from may not include \"$name\": $to lies above or beside it");
        }
    } elsif ($file =~ m{^(cli|server)/} && $to ne 'base'
             && !($file =~ m{^cli/cmd_(serve|version)\.c$} && $name eq 'server/serve.h')) {
        violation($file, $line, "$1 sees prevue/*.h and base only, not \"$name\"");
    }
}

sub check_guard
{
    my ($file, $code) = @_;
    my $guard = uc($file);
    $guard =~ s{^(INCLUDE/PREVUE|SRC)/}{};
    $guard =~ s/\W/_/g;
    $guard = $guard eq 'PREVUE_H' ? $guard : "PV_$guard";
    violation($file, 1, "include guard is not $guard")
        unless $code =~ /^\s*#ifndef $guard\n#define $guard\n/ && $code =~ /#endif\s*$/;
}

sub check_functions
{
    my ($file, $code) = @_;
    my ($line, $begin, $name) = (0, 0, '');
    for my $text (split /\n/, $code) {
        $line++;
        $name = $1 if $text =~ /^\w.*?(\w+)\(/;
        $begin = $line if $text eq '{';
        if ($begin && $text =~ /^\}/) {
            my $n = $line - $begin + 1;
            violation($file, $begin, "$name has $n lines, more than $max_function")
                if $n > $max_function;
            $begin = 0;
        }
    }
}

sub check_code
{
    my ($file, $raw) = @_;
    my $code = strip($raw);
    my $line = 0;
    for my $text (split /\n/, $raw) {
        $line++;
        check_include($file, $line, $1 eq '"', $2) if $text =~ /^\s*#\s*include\s*(["<])([^">]+)/;
    }
    $line = 0;
    for my $text (split /\n/, $code) {
        $line++;
        violation($file, $line, "$1 is banned") if $text =~ $banned;
        violation($file, $line, "typedef of a struct")
            if $text =~ /\btypedef\s+struct\b/ && $file ne 'include/prevue/prevue.h';
        next unless $file =~ m{^src/};
        violation($file, $line, "$1 is banned in the library") if $text =~ $banned_in_src;
        violation($file, $line, "the library does not print") if $text =~ /\bfprintf\s*\(\s*std/;
        violation($file, $line, "$1: the library's memory comes from base/mem.h")
            if $text =~ $allocation && $file ne 'src/base/mem.c';
    }
    while ($code =~ /\b(?:if|while)\s*(\((?:[^()]++|(?1))*\))/g) {
        my ($condition, $at) = ($1, $-[0]);
        violation($file, line_of($code, $at), "assignment in a condition")
            if $condition =~ /[\w\]) ]\s*(?<![=!<>])(?:<<|>>|[-+*\/|&^%])?=(?!=)/
            && $condition !~ /\(struct/;
    }
    while ($code =~ /^[ \t]*#[ \t]*define\b((?:[^\n]*\\\n)*[^\n]*)/gm) {
        my ($body, $at) = ($1, $-[0]);
        violation($file, line_of($code, $at), "control flow ($1) in a macro")
            if $body =~ /\b(return|goto|break|continue)\b/;
    }
    check_functions($file, $code);
    check_guard($file, $code) if $file =~ /\.(?:h|cuh)$/;
}

my %stem;
for my $file (@ARGV) {
    next unless $file =~ /\.(c|h|cu|cuh|cpp|sh|pl|py|md|mk)$|Makefile$|^\.ci\//;
    open my $in, '<:raw', $file or die "$file: $!\n";
    my $raw = do { local $/; <$in> } // '';
    close $in;
    my $is_code = $file =~ /\.(?:c|h|cu|cuh|cpp)$/;
    my $line = 0;
    for my $text (split /\n/, $raw) {
        $line++;
        violation($file, $line, "trailing white space") if $text =~ /[ \t\r]$/;
        violation($file, $line, "tab") if $text =~ /\t/ && $file !~ /Makefile$|\.mk$/;
    }
    violation($file, $line, "no newline at the end") if length $raw && $raw !~ /\n\z/;
    next unless $is_code;
    violation($file, $line, "$line lines, more than $max_file")
        if $line > $max_file && $file !~ /_tables?\.(?:c|h|cu)$/;
    check_code($file, $raw);
    my ($name) = $file =~ m{([^/]+)$};
    if ($name ne 'main.c') {
        violation($file, 1, "$name is also the name of $stem{$name}") if $stem{$name};
        $stem{$name} = $file;
    }
}
exit $bad;
