//! Tests of the source itself: its layers, its size, its imports, its dependencies.

mod charts;
mod first_mistakes;
mod frames;
mod imports;
mod layering;
mod links;
mod measures;
mod pictures;
mod scripts;
mod source;
mod tree;
